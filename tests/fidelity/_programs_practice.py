"""Small programs of the forms that training code has: schedules, losses, caches, masks, copies of a whole state."""

# ruff: noqa: E501  a program is one line

from __future__ import annotations

PRACTICE = {
    "training loops in practice": """
m = nn.Linear(3, 2).to(device); (m(torch.randn(4, 3, device=device)) * 100).square().mean().backward(); n = nn.utils.clip_grad_norm_(m.parameters(), 1.0, norm_type=float("inf"), error_if_nonfinite=True, foreach=True); nn.utils.clip_grad_value_(m.parameters(), .1); [n, m]
m = nn.Linear(3, 2).to(device); m(torch.randn(4, 3, device=device)).sum().backward(); n = nn.utils.get_total_norm([p.grad for p in m.parameters()]); nn.utils.clip_grads_with_norm_(m.parameters(), .1, n); [n, m, nn.utils.parameters_to_vector(m.parameters())]
[i(torch.empty(4, 6, device=device)) for i in (nn.init.uniform_, nn.init.normal_, nn.init.ones_, nn.init.zeros_, nn.init.eye_, nn.init.xavier_uniform_, nn.init.xavier_normal_, nn.init.kaiming_uniform_, nn.init.kaiming_normal_, nn.init.trunc_normal_, nn.init.orthogonal_)] + [nn.init.sparse_(torch.empty(4, 6, device=device), .5), nn.init.dirac_(torch.empty(4, 2, 3, device=device), 2), nn.init.constant_(torch.empty(2, device=device), 3), nn.init.trunc_normal_(torch.empty(5, device=device), 1, 2, -1, 3), nn.init.kaiming_normal_(torch.empty(3, 3, device=device), mode="fan_out", nonlinearity="leaky_relu", a=.2)]
m = nn.Linear(3, 3, device=device); nn.init.orthogonal_(m.weight, 2.); nn.init.uniform_(m.bias, generator=None); m
m = nn.Linear(2, 1).to(device); o = torch.optim.LBFGS(m.parameters(), lr=.5, max_iter=4, history_size=3, line_search_fn="strong_wolfe"); fitted(m, lambda p: torch.optim.LBFGS(p, line_search_fn="strong_wolfe", max_iter=4), torch.randn(5, 2, device=device))
[fitted(nn.Linear(3, 2).to(device), f, torch.randn(5, 3, device=device)) for f in (lambda p: torch.optim.Adam(p, lr=torch.tensor(.1), foreach=False), lambda p: torch.optim.AdamW(p, capturable=False, lr=torch.tensor(.01), fused=True))]
m = nn.Linear(3, 3, bias=False).to(device); fitted(m, lambda p: torch.optim.Muon(p, lr=.1), torch.randn(5, 3, device=device)) if hasattr(torch.optim, "Muon") else 0
m = nn.Linear(3, 2).to(device); o = torch.optim.Adam(m.parameters()); m(torch.ones(1, 3, device=device)).sum().backward(); o.step(); sd = saved(o.state_dict()); o2 = torch.optim.Adam(copy.deepcopy(m).parameters(), lr=1.); o2.load_state_dict(sd); [o2, pickled(o), copy.deepcopy(o)]
m = nn.Linear(3, 2).to(device); o = torch.optim.SGD(m.parameters(), .1, momentum=.9); m(torch.ones(1, 3, device=device)).sum().backward(); o.step(); sd = o.state_dict(); f = io.BytesIO(); torch.save({"m": m.state_dict(), "o": sd, "rng": torch.get_rng_state()}, f); f.seek(0); c = torch.load(f, map_location="cpu", weights_only=True); o.load_state_dict(c["o"]); m.load_state_dict(c["m"]); [m, o, c]
m = nn.Linear(2, 2, device="meta").to_empty(device=device); nn.init.ones_(m.weight); nn.init.zeros_(m.bias); m
o = torch.optim.Adam([nn.Parameter(torch.ones(2, device=device))], lr=torch.tensor(.1)); s = torch.optim.lr_scheduler.LambdaLR(o, lambda e: .5 ** e); o.step(); s.step(); o.param_groups[0]["lr"]
[s(torch.optim.SGD([nn.Parameter(torch.ones(1, device=device))], .1)).get_last_lr() for s in (lambda o: torch.optim.lr_scheduler.StepLR(o, 1), lambda o: torch.optim.lr_scheduler.CyclicLR(o, .1, 1.), lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2), lambda o: torch.optim.lr_scheduler.PolynomialLR(o), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, .9))]
x = torch.randn(3, 4, device=device); p = nn.utils.skip_init(nn.Linear, 4, 2, device=device); nn.init.ones_(p.weight); nn.init.zeros_(p.bias); p(x)
m = nn.Linear(3, 2).to(device); m.weight.requires_grad = False; o = torch.optim.Adam(filter(lambda p: p.requires_grad, m.parameters())); m(torch.ones(1, 3, device=device)).sum().backward(); o.step(); o.add_param_group({"params": [m.weight], "lr": 1.}); [m, o, m.weight.grad is None]
e = nn.Embedding(4, 3); l = nn.Linear(3, 4, bias=False); l.weight = e.weight; m = nn.Sequential(e, l).to(device); o = torch.optim.SGD(m.parameters(), 1.); m(torch.tensor([1, 2], device=device)).sum().backward(); o.step(); [m, m[0].weight is m[1].weight, copy.deepcopy(m)[0].weight is m[0].weight]
p = [torch.randn(2, 2, device=device, requires_grad=True) for _ in range(3)]; o = torch.optim.SGD(p, .1, momentum=.9, foreach=True, weight_decay=.1); sum(q.square().sum() for q in p[:2]).backward(); o.step(); o.zero_grad(); [p, o, p[2].grad is None]
o = torch.optim.Adam([{"params": [nn.Parameter(torch.ones(2, device=device))], "lr": .1, "name": "a"}, {"params": [nn.Parameter(torch.ones(2, dtype=torch.double, device=device))]}], lr=.2); [setattr(q, "grad", torch.ones_like(q)) for g in o.param_groups for q in g["params"]]; o.step(); [o, [g["params"] for g in o.param_groups]]
""",
    "indexing and tensors in practice": """
b1 = torch.rand(3, 4, device=device); b2 = torch.rand(2, 4, device=device); b1[:, 2:] += b1[:, :2]; b2[:, 2:] += b2[:, :2]; lt = torch.max(b1[:, None, :2], b2[:, :2]); rb = torch.min(b1[:, None, 2:], b2[:, 2:]); wh = (rb - lt).clamp(min=0); inter = wh[..., 0] * wh[..., 1]; a = lambda b: (b[:, 2:] - b[:, :2]).prod(1); inter / (a(b1)[:, None] + a(b2) - inter)
k = torch.zeros(1, 2, 6, 4, device=device); pos = torch.tensor([2, 4], device=device); k.index_copy_(2, pos, torch.ones(1, 2, 2, 4, device=device)); k[:, :, torch.tensor([0])] = 3; k
torch.scatter_reduce(torch.zeros(4, device=device), 0, torch.tensor([0, 1, 1, 3], device=device), torch.arange(4., device=device), "mean", include_self=False)
[torch.scatter_reduce(torch.ones(4, device=device), 0, torch.tensor([0, 1, 1, 3], device=device), torch.arange(4., device=device), r) for r in ("sum", "prod", "amin", "amax", "mean")]
[torch.bucketize(torch.tensor(2.5, device=device), torch.tensor([1., 2., 3.], device=device), right=True), torch.bucketize(3, torch.tensor([1, 3], device=device)), torch.searchsorted(torch.tensor([[1, 3, 5], [2, 4, 6]], device=device), torch.tensor([[3], [4]], device=device), side="right", out_int32=True), torch.searchsorted(torch.tensor([3, 1, 2], device=device), 2, sorter=torch.tensor([1, 2, 0], device=device))]
[torch.histc(torch.arange(10., device=device), bins=5, min=2, max=8), torch.histc(torch.zeros(0, device=device)), torch.histc(torch.ones(3, device=device), 4, 0, 0)]
[x.unfold(0, 3, 2) for x in [torch.arange(9., device=device)]]
[torch.einsum("ii", torch.randn(3, 3, device=device)), torch.einsum("ij->", torch.randn(3, 2, device=device)), torch.einsum("bn,anm,bm->ba", torch.randn(2, 5, device=device), torch.randn(3, 5, 4, device=device), torch.randn(2, 4, device=device))]
x = torch.tensor([3, 1, 3, 1, 2, 3], device=device); [x.sort(stable=True), x.argsort(stable=True, descending=True), x.topk(2), torch.sort(x.bool(), stable=True), x.float().cummax(0), x.cummin(0), x.argmax(), x.unique(sorted=False, return_inverse=True)]
x = torch.tensor([float("nan"), 1., float("inf"), -float("inf"), 2.], device=device); [x.sort(), x.max(), x.min(), x.argmax(), x.nanmedian(), x.median(), x.nan_to_num(1, 2, 3), x.topk(2), x.cummax(0), x.clamp(0, 1), x.fmax(torch.zeros(5, device=device)), torch.maximum(x, torch.zeros(5, device=device)), x.nanquantile(.5), x.isposinf(), x.unique(), x.msort(), x.sign(), x.logical_not(), x.int() * 0]
x = torch.tensor([[1, 1, 2], [0, 1, 2], [1, 1, 2]], device=device); [torch.unique(x, dim=0, return_counts=True), torch.unique(x, dim=1), torch.unique_consecutive(x, return_inverse=True), torch.unique_consecutive(x, dim=0)]
x = torch.randn(3, 4, device=device); mean, std = x.mean(0), x.std(0, correction=0); x.sub_(mean).div_(std.clamp_min_(1e-5)); x
x = torch.arange(6., device=device); s = torch.as_strided(x, (2, 2), (2, 1), 1); s.zero_(); [x, s, x.as_strided((3,), (2,)), torch.as_strided_copy(x, (2,), (3,))]
x = torch.zeros(3, 3, device=device); [torch.select_scatter(x, torch.ones(3, device=device), 0, 1), torch.slice_scatter(x, torch.ones(1, 3, device=device), 0, 1, 2), torch.diagonal_scatter(x, torch.ones(3, device=device)), torch.index_fill(x, 1, torch.tensor([0, 2], device=device), 5.), torch.index_fill(x, 0, torch.tensor([1], device=device), torch.tensor(2.))]
x = torch.arange(3., device=device); a = x.cpu().numpy(); b = torch.from_numpy(a).to(device); c = torch.tensor(a, device=device); d = torch.as_tensor(a, device=device); [a, b, c, d, np.array(x.cpu()), x.detach().cpu().numpy().mean(), np.float32(x.sum().item()), torch.tensor(np.array([True, False]), device=device), torch.tensor(np.float64(2), device=device)]
torch.asarray(np.arange(3), device=device)
from torch.fx.experimental.proxy_tensor import make_fx; g = make_fx(lambda x: x.sin() * 2)(torch.ones(2, device=device)); [g(torch.zeros(2, device=device)), g.code]
from torch.utils.data import *; a, b = random_split(range(6), [4, 2]); s = WeightedRandomSampler(torch.tensor([.1, .9, .5], device=device), 4); [list(a.indices), list(s), list(BatchSampler(RandomSampler(range(5)), 2, False)), default_collate([{"a": torch.ones(2, device=device), "b": 1}, {"a": torch.zeros(2, device=device), "b": 2}])["a"]]
""",
    "distributions and draws in practice": """
w = torch.tensor([[.1, .9, 0.], [1., 0, 0]], device=device); [torch.multinomial(w, 4, replacement=True), torch.multinomial(w[0], 2), torch.bernoulli(w, .3), torch.bernoulli(w), torch.empty(3, device=device).bernoulli_(w[0]), torch.normal(w, w + 1), torch.normal(1., w + 1), torch.normal(w, 2.)]
g = torch.Generator(device); g.manual_seed(1); s = g.get_state(); a = torch.rand(3, generator=g, device=device); g.set_state(s); [a, torch.rand(3, generator=g, device=device), g.device, g.seed() > 0, s]
import torch.distributions as D; c = torch.tensor([[2., .5], [.5, 1.]], device=device, requires_grad=True); d = D.MultivariateNormal(torch.zeros(2, device=device), covariance_matrix=c); x = d.rsample((3,)); backward(d.log_prob(x), c) + [d.entropy(), d.precision_matrix, D.MultivariateNormal(torch.zeros(2, device=device), precision_matrix=c.detach()).sample(), D.MultivariateNormal(torch.zeros(2, device=device), scale_tril=torch.eye(2, device=device)).variance]
import torch.distributions as D; d = D.LowRankMultivariateNormal(torch.zeros(3, device=device), torch.ones(3, 1, device=device), torch.ones(3, device=device)); x = d.rsample(); [x, d.log_prob(x), d.covariance_matrix, d.entropy()]
import torch.distributions as D; b = D.Normal(torch.zeros(2, device=device), torch.ones(2, device=device)); d = D.TransformedDistribution(b, [D.AffineTransform(torch.tensor(1., device=device), 2.), D.SigmoidTransform(), D.transforms.PowerTransform(torch.tensor(2., device=device))]); x = d.rsample((2,)); [x, d.log_prob(x), d.cdf(x), D.Independent(b, 1).log_prob(torch.ones(2, device=device))]
import torch.distributions as D; t = [D.StickBreakingTransform(), D.SoftmaxTransform(), D.CorrCholeskyTransform(), D.LowerCholeskyTransform(), D.TanhTransform(), D.ExpTransform(), D.SoftplusTransform()]; x = torch.tensor([[.1, .2, .3]], device=device); [f(x) for f in (t[0], t[1], t[2], t[4], t[5], t[6])] + [t[0].inv(t[0](x)), t[4].log_abs_det_jacobian(x, t[4](x))]
import torch.distributions as D; d = D.Categorical(logits=torch.randn(3, 4, device=device)); [d.entropy(), d.enumerate_support(), d.expand((2, 3)).sample(), d.param_shape, repr(d), D.Normal(0., torch.ones(2, device=device)).sample(), D.Normal(torch.tensor(0.), torch.tensor(1.)).sample().to(device)]
import torch.distributions as D; m = nn.Linear(3, 4).to(device); x = torch.randn(5, 3, device=device); pi = D.Categorical(logits=m(x)); a = pi.sample(); r = torch.randn(5, device=device); (-(pi.log_prob(a) * r).mean() - .01 * pi.entropy().mean()).backward(); [a, m]
x = torch.randn(5, 3, device=device); torch.vmap(lambda a: F.dropout(a, .5), randomness="same")(x)
x = torch.randn(5, 3, device=device); torch.vmap(lambda a: F.dropout(a, .5) + torch.randn(3, device=device), randomness="different")(x)
logits = torch.randn(2, 10, device=device); v, i = logits.sort(descending=True); c = v.softmax(-1).cumsum(-1); r = c > .8; r[:, 1:] = r[:, :-1].clone(); r[:, 0] = False; l = logits.masked_fill(r.scatter(1, i, r), -float("inf")); [l, torch.multinomial(l.softmax(-1), 1)]
""",
    "layers and losses in practice": """
m = nn.Linear(3, 2).to(device); nn.utils.vector_to_parameters(torch.arange(8., device=device), m.parameters()); m
z1 = F.normalize(torch.randn(4, 8, device=device, requires_grad=True), dim=-1); z2 = F.normalize(torch.randn(4, 8, device=device), dim=-1); z = torch.cat([z1, z2]); sim = z @ z.T / .1; sim.masked_fill_(torch.eye(8, dtype=torch.bool, device=device), -1e9); t = (torch.arange(8, device=device) + 4) % 8; l = F.cross_entropy(sim, t); l.backward(); l
z = torch.randn(6, 4, device=device, requires_grad=True); y = torch.tensor([0, 0, 1, 1, 2, 2], device=device); d = torch.cdist(z, z); pos = (y[:, None] == y).float() - torch.eye(6, device=device); l = F.relu((d * pos).amax(1) - (d + 1e3 * (y[:, None] == y)).amin(1) + .2).mean(); l.backward(); [z, l]
x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); t = F.one_hot(torch.randint(3, (2, 4, 4), device=device), 3).permute(0, 3, 1, 2).float(); p = x.softmax(1); inter = (p * t).sum((2, 3)); l = 1 - ((2 * inter + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)).mean(); l.backward(); [x, l]
x = torch.randn(8, device=device, requires_grad=True); t = torch.randint(2, (8,), device=device).float(); p = x.sigmoid(); ce = F.binary_cross_entropy_with_logits(x, t, reduction="none"); pt = p * t + (1 - p) * (1 - t); l = (.25 * (1 - pt) ** 2 * ce).mean(); l.backward(); [x, l]
m = torch.full((4, 4), float("-inf"), device=device).triu(1); q = torch.randn(2, 4, 8, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, attn_mask=m), q)
q = torch.randn(2, 2, 4, 8, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
q = torch.randn(2, 2, 4, 8, device=device); F.scaled_dot_product_attention(q, q[:, :1], q[:, :1], enable_gqa=True, scale=.3)
m = nn.MultiheadAttention(8, 2, batch_first=True).to(device); x = torch.randn(2, 4, 8, device=device, requires_grad=True); backward(m(x, x, x, key_padding_mask=torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]], dtype=torch.bool, device=device), need_weights=True, average_attn_weights=False), x, m)
m = nn.MultiheadAttention(8, 2, add_bias_kv=True, add_zero_attn=True, kdim=4, vdim=6, dropout=.3).to(device); q = torch.randn(3, 2, 8, device=device); backward(m(q, torch.randn(5, 2, 4, device=device), torch.randn(5, 2, 6, device=device)), m)
x = torch.randn(1, 2, 6, 6, device=device, requires_grad=True); u = F.unfold(x, 3, padding=1, stride=2, dilation=1); backward(F.fold(u, (6, 6), 3, padding=1, stride=2), x, u)
x = torch.randn(1, 2, 5, 5, device=device, requires_grad=True); g = torch.rand(1, 3, 3, 2, device=device).mul(2.4).sub(1.2).requires_grad_(); backward(sum(F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=a) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection") for a in (True, False)), x, g)
x = torch.randn(1, 2, 5, 5, device=device, requires_grad=True); t = torch.eye(2, 3, device=device)[None].requires_grad_(); backward(F.grid_sample(x, F.affine_grid(t, (1, 2, 4, 4), align_corners=False), align_corners=False), x, t)
x = torch.randn(1, 2, 3, 3, 3, device=device, requires_grad=True); g = torch.rand(1, 2, 2, 2, 3, device=device); backward(F.grid_sample(x, g, align_corners=True), x)
x = torch.randn(1, 2, 4, 4, device=device, requires_grad=True); backward(sum(F.interpolate(x, size=(7, 5), mode=m).sum() for m in ("nearest", "nearest-exact", "bilinear", "bicubic", "area")), x)
x = torch.randn(1, 2, 8, 8, device=device, requires_grad=True); backward(F.interpolate(x, scale_factor=.4, mode="bilinear", antialias=True, recompute_scale_factor=True) + F.interpolate(x, scale_factor=.4, mode="bicubic", antialias=True), x)
x = torch.randn(1, 2, 4, 4, 4, device=device, requires_grad=True); backward(F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=True), x)
x = torch.randn(1, 2, 4, device=device, requires_grad=True); backward(F.interpolate(x, scale_factor=1.5, mode="linear"), x)
""",
    "autograd and transforms in practice": """
inv = 1.0 / (10000 ** (torch.arange(0, 8, 2, device=device).float() / 8)); f = torch.outer(torch.arange(5, device=device), inv); c = torch.polar(torch.ones_like(f), f); x = torch.randn(1, 5, 2, 8, device=device, requires_grad=True); o = torch.view_as_real(torch.view_as_complex(x.reshape(1, 5, 2, 4, 2)) * c[None, :, None]).flatten(3); backward(o, x)
x = torch.randn(1, 5, 8, device=device, requires_grad=True); pos = torch.arange(5., device=device)[:, None]; a = pos * torch.ones(4, device=device); rot = torch.cat((-x[..., 4:], x[..., :4]), -1); backward(x * torch.cat([a, a], -1).cos() + rot * torch.cat([a, a], -1).sin(), x)
x = torch.arange(4., device=device, requires_grad=True); backward(torch.zeros(3, device=device).scatter_reduce(0, torch.tensor([0, 1, 1, 0], device=device), x + 1, "prod", include_self=False), x)
x = torch.arange(4., device=device, requires_grad=True); backward(torch.zeros(3, device=device).index_reduce(0, torch.tensor([0, 1, 1, 0], device=device), x + 1, "mean"), x)
a = torch.randn(2, 3, 4, device=device, requires_grad=True); b = torch.randn(4, 5, device=device, requires_grad=True); backward(torch.einsum("...ij,jk->...ki", a, b) + torch.einsum(a, [0, 1, 2], b, [2, 3], [0, 3, 1]), a, b)
a = torch.randn(5, 3, device=device, requires_grad=True); b = torch.randn(4, 3, device=device, requires_grad=True); backward(sum(torch.cdist(a, b, p=p) for p in (0., 1., 2., 3., float("inf"))), a, b)
a = torch.randn(30, 3, device=device, requires_grad=True); backward(torch.cdist(a, a[:26], compute_mode="use_mm_for_euclid_dist"), a)
x = torch.randn(4, 5, device=device, requires_grad=True); backward(x.cummax(1)[0] + x.cummin(0)[0] + x.sort(1)[0] + x.logcumsumexp(1) + x.cumprod(1), x)
x = torch.randn(4, 5, device=device, requires_grad=True); backward(x.topk(2)[0].sum() + x.kthvalue(2, 1)[0].sum() + x.median() + x.mode(0)[0].sum() + x.amax(1).sum() + x.quantile(.3) + x.nanmean() + x.std(0).sum() + x.var() + x.norm(3), x)
f = lambda x: (x ** 3).sum() + x.prod(); x = torch.tensor([1., 2., 3.], device=device); [torch.func.jvp(f, (x,), (torch.ones(3, device=device),)), torch.func.vjp(f, x)[1](torch.tensor(1., device=device)), torch.func.jacfwd(torch.func.jacrev(f))(x), torch.autograd.functional.hessian(f, x), torch.autograd.functional.vhp(f, x, torch.ones(3, device=device)), torch.func.linearize(f, x)[1](torch.ones(3, device=device))]
x = torch.ones(2, device=device, requires_grad=True); r = []; x.register_post_accumulate_grad_hook(lambda p: r.append(p.grad.clone())); y = (x * 2); y.grad_fn.register_hook(lambda gi, go: r.append(go[0])); y.grad_fn.register_prehook(lambda g: (g[0] * 3,)); y.sum().backward(); [r, x]
r = []; x = torch.ones(2, device=device, requires_grad=True); a, b = x * 2, x * 3; h = torch.autograd.graph.register_multi_grad_hook([a, b], lambda g: r.append([t for t in g])); (a + b).sum().backward(); [r, x]
x = torch.arange(6., device=device, requires_grad=True); backward(x.clone().as_strided((2, 3), (1, 2)) * 2, x)
x = torch.arange(6., device=device, requires_grad=True); backward(torch.as_strided_scatter(x, torch.ones(2, device=device), (2,), (2,)) * 2, x)
x = torch.arange(4., device=device, requires_grad=True); y = x.view(2, 2); [y._base is x, y._is_view(), y._version, y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), y.grad_fn.next_functions[0][0].variable is x]
x = torch.arange(6., device=device, requires_grad=True); y = x.clone(); y[torch.tensor([0, 0, 1])] = torch.arange(3., device=device) * x[3]; y[y > 2] = 0; backward(y * y, x)
x = torch.arange(3., device=device, requires_grad=True); backward(torch.as_tensor(x, dtype=torch.float64) * 2, x)
x = torch.arange(3., requires_grad=True); backward(torch.as_tensor(x, device=device) * 2, x)
""",
    "compile as a whole in practice": """
m = nn.Linear(3, 2).to(device); f = torch.compile(m, backend="eager", fullgraph=True); x = torch.ones(2, 3, device=device, requires_grad=True); [f(x).detach(), m(x).detach()]
torch.compile(lambda x: torch.vmap(torch.sin)(x), fullgraph=True, backend="eager")(torch.ones(3, device=device))
""",
}
