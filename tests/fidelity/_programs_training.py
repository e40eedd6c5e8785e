"""Small programs that train, by kind, and what is not equal.

A program is one line of Python: its last expression is its result, `device` is where it runs.
"""

# ruff: noqa: E501  a program is one line

from __future__ import annotations

TRAINING = {
    "autograd": """
x = torch.arange(4., device=device, requires_grad=True); (x * x).sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); (x * x).sum().backward(); (x * 3).sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
x = torch.arange(4., device=device, requires_grad=True); g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True); g.sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); (x * 2).backward(torch.ones(4, device=device)); x
x = torch.arange(4., device=device, requires_grad=True); y = x * 2; y.retain_grad(); y.sum().backward(); [x, y.grad]
x = torch.arange(4., device=device, requires_grad=True); y = x * 2; y.sum().backward(retain_graph=True); y.sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.grad(x.sum(), [x, torch.ones(1, device=device, requires_grad=True)], allow_unused=True)
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.grad(x.sum(), [torch.ones(1, device=device, requires_grad=True)], allow_unused=True, materialize_grads=True)
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.backward([x.sum(), (x * x).sum()]); x
x = torch.arange(4., device=device, requires_grad=True); x.register_hook(lambda g: g * 2); x.sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); y = x * 2; y.register_hook(lambda g: g + 1); y.sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); seen = []; x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone())); x.sum().backward(); seen
x = torch.arange(4., device=device, requires_grad=True); y = x * 2; seen = []; y.grad_fn.register_hook(lambda i, o: seen.append((i, o))); y.sum().backward(); seen
x = torch.arange(4., device=device, requires_grad=True); y = x * 2; seen = []; y.grad_fn.register_prehook(lambda o: seen.append(o)); y.sum().backward(); seen
x = torch.arange(4., device=device, requires_grad=True); seen = []; torch.autograd.graph.register_multi_grad_hook([x], lambda g: seen.append(g)); x.sum().backward(); seen
x = torch.arange(4., device=device, requires_grad=True); torch.no_grad().__call__(lambda: x * 2)()
x = torch.arange(4., device=device, requires_grad=True); torch.inference_mode()(lambda: x * 2)().requires_grad
x = torch.arange(4., device=device, requires_grad=True); y = x.exp(); [y.grad_fn.name(), y.grad_fn.next_functions[0][0].name(), y.grad_fn._saved_result]
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.functional.jacobian(lambda x: x ** 2, x)
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.functional.hessian(lambda x: (x ** 3).sum(), x)
x = torch.arange(4., device=device); torch.autograd.functional.vjp(lambda x: x ** 2, x, torch.ones(4, device=device))
x = torch.arange(4., device=device); torch.autograd.functional.jvp(lambda x: x ** 2, x, torch.ones(4, device=device))
x = torch.arange(4., device=device); torch.autograd.functional.hvp(lambda x: (x ** 3).sum(), x, torch.ones(4, device=device))
x = torch.arange(4., device=device); torch.autograd.functional.vhp(lambda x: (x ** 3).sum(), x, torch.ones(4, device=device))
x = torch.arange(4., device=device); torch.autograd.functional.jacobian(lambda x: x ** 2, x, vectorize=True)
x = torch.arange(4., device=device); torch.autograd.functional.jacobian(lambda x: x ** 2, x, strategy="forward-mode", vectorize=True)
F2 = type("Double", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: (ctx.save_for_backward(x), x * 2)[1]), "backward": staticmethod(lambda ctx, g: g * 2 + ctx.saved_tensors[0])}); x = torch.arange(4., device=device, requires_grad=True); backward(F2.apply(x), x)
F2 = type("Mark", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: (ctx.mark_dirty(x), x.add_(1))[1]), "backward": staticmethod(lambda ctx, g: g * 3)}); x = torch.arange(4., device=device, requires_grad=True); backward(F2.apply(x.clone()), x)
F2 = type("Two", (torch.autograd.Function,), {"forward": staticmethod(lambda x, n: (x * n, x.long())), "setup_context": staticmethod(lambda ctx, i, o: (setattr(ctx, "n", i[1]), ctx.mark_non_differentiable(o[1]))), "backward": staticmethod(lambda ctx, g, h: (g * ctx.n, None))}); x = torch.arange(4., device=device, requires_grad=True); backward(F2.apply(x, 3)[0], x)
x = torch.arange(4., device=device, requires_grad=True); c = torch.utils.checkpoint.checkpoint(lambda x: (x * x).exp(), x, use_reentrant=False); backward(c, x)
x = torch.arange(4., device=device, requires_grad=True); c = torch.utils.checkpoint.checkpoint(lambda x: (x * x).exp(), x, use_reentrant=True); backward(c, x)
m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(.5), nn.Linear(4, 4)).to(device); x = torch.ones(2, 4, device=device, requires_grad=True); backward(torch.utils.checkpoint.checkpoint(m, x, use_reentrant=False), x, m)
m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(.5), nn.Linear(4, 4)).to(device); x = torch.ones(2, 4, device=device, requires_grad=True); backward(torch.utils.checkpoint.checkpoint(m, x, use_reentrant=True), x, m)
m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()).to(device); x = torch.ones(2, 4, device=device, requires_grad=True); backward(torch.utils.checkpoint.checkpoint_sequential(m, 2, x, use_reentrant=False), x, m)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.saved_tensors_hooks(lambda t: t.double(), lambda t: t.float()), lambda: (x * x).exp()); backward(y, x)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.save_on_cpu(), lambda: (x * x).exp()); backward(y, x)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.save_on_cpu(pin_memory=True), lambda: (x * x).exp()); backward(y, x)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.to(device)), lambda: (x * x).exp()); backward(y, x)
x = torch.tensor([1., float("nan"), -0., float("inf")], device=device, requires_grad=True); backward(x * -1 + x.abs(), x)
x = torch.arange(4., device=device, requires_grad=True); y = x.view(2, 2); y2 = y.t() @ y; y2.sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); a, b = x.split(2); (a * b).sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); a, b = x.chunk(2); torch.cat([b, a]).pow(2).sum().backward(); x
x = torch.arange(4., device=device, requires_grad=True); torch.stack([x, x * 2]).mean().backward(); x
x = torch.arange(4., device=device, requires_grad=True); x.detach().requires_grad_()
x = torch.arange(4., device=device, requires_grad=True); y = torch.tensor(2., requires_grad=True); (x * y).sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); s = torch.tensor(0.); s = s + x.sum(); s.backward(); [s, x]
x = torch.arange(4., device=device, requires_grad=True); (x * torch.tensor(2., dtype=torch.float64)).sum().backward(); x
x = torch.ones(3, device=device, requires_grad=True); x.grad = torch.ones(3, device=device); x.sum().backward(); x
x = torch.ones(3, device=device, requires_grad=True); x.sum().backward(); x.grad = None; x
x = torch.ones(3, device=device, requires_grad=True); x.sum().backward(); x.grad.zero_(); x
x = torch.ones(3, device=device, requires_grad=True); within(torch.autograd.detect_anomaly(), lambda: backward(x.log(), x))
import torch.autograd.forward_ad as fwAD; x = torch.arange(3., device=device); d = fwAD.dual_level(); d.__enter__(); t = fwAD.unpack_dual(fwAD.make_dual(x, torch.ones(3, device=device)).exp()); r = [t.primal.clone(), t.tangent.clone()]; d.__exit__(None, None, None); r
torch.autograd.gradcheck(lambda x: x.sin(), torch.randn(3, dtype=torch.float64, device=device, requires_grad=True))
torch.autograd.gradgradcheck(lambda x: x.sin(), torch.randn(3, dtype=torch.float64, device=device, requires_grad=True))
x = torch.ones(3, device=device, requires_grad=True); y = x.unsqueeze(0).expand(2, 3); y.sum().backward(); x
x = torch.randn(5, device=device, requires_grad=True); v, i = x.topk(2); v.sum().backward(); [x, i]
x = torch.randn(5, device=device, requires_grad=True); x.max().backward(); x
x = torch.randn(5, device=device, requires_grad=True); x.std().backward(); x
x = torch.randn(5, device=device, requires_grad=True); x.cumsum(0).prod().backward(); x
x = torch.randn(5, device=device, requires_grad=True); x.cumprod(0).sum().backward(); x
x = torch.randn(5, device=device, requires_grad=True); x.logsumexp(0).backward(); x
x = torch.randn(5, device=device, requires_grad=True); x.norm().backward(); x
x = torch.zeros(5, device=device, requires_grad=True); x.norm().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.prod(1).sum().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.median(1).values.sum().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.sort(1).values[:, 0].sum().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.amax(1).sum().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.kthvalue(2, 0).values.sum().backward(); x
x = torch.randn(5, 3, device=device, requires_grad=True); x.repeat(2, 1).repeat_interleave(2, 0).roll(1).flip(0).rot90().sum().backward(); x
x = torch.randn(4, 3, device=device, requires_grad=True); torch.cdist(x, x[:2] + 1).sum().backward(); x
x = torch.randn(4, 3, device=device, requires_grad=True); F.pdist(x).sum().backward(); x
x = torch.randn(4, 3, device=device, requires_grad=True); torch.einsum("ij,kj->ik", x, x).sum().backward(); x
x = torch.randn(4, 3, device=device, requires_grad=True); torch.tensordot(x, x, dims=([0], [0])).sum().backward(); x
""",
    "func transforms": """
torch.func.grad(lambda x: (x ** 2).sum())(torch.arange(3., device=device))
torch.func.grad_and_value(lambda x: (x ** 2).sum())(torch.arange(3., device=device))
torch.func.vmap(lambda x: x.sum() * x)(torch.arange(6., device=device).view(2, 3))
torch.vmap(torch.dot)(torch.arange(6., device=device).view(2, 3), torch.ones(2, 3, device=device))
torch.vmap(lambda x, y: x + y, in_dims=(0, None), out_dims=1)(torch.arange(6., device=device).view(2, 3), torch.ones(3, device=device))
torch.func.jacrev(torch.sin)(torch.arange(3., device=device))
torch.func.jacfwd(torch.sin)(torch.arange(3., device=device))
torch.func.hessian(lambda x: x.sin().sum())(torch.arange(3., device=device))
torch.func.vjp(torch.sin, torch.arange(3., device=device))[1](torch.ones(3, device=device))
torch.func.vjp(torch.sin, torch.arange(3., device=device))[0]
torch.func.jvp(torch.sin, (torch.arange(3., device=device),), (torch.ones(3, device=device),))
torch.func.linearize(torch.sin, torch.arange(3., device=device))[1](torch.ones(3, device=device))
m = nn.Linear(3, 2).to(device); torch.func.functional_call(m, dict(m.named_parameters()), torch.ones(2, 3, device=device))
m = nn.Linear(3, 2).to(device); torch.func.functional_call(m, {"weight": torch.ones(2, 3, device=device)}, (torch.ones(2, 3, device=device),))
m = nn.Linear(3, 2).to(device); p = dict(m.named_parameters()); torch.func.grad(lambda p, x: torch.func.functional_call(m, p, x).pow(2).sum())(p, torch.ones(2, 3, device=device))
m = nn.Linear(3, 2).to(device); p = {k: v.detach() for k, v in m.named_parameters()}; torch.vmap(torch.func.grad(lambda p, x: torch.func.functional_call(m, p, x).pow(2).sum()), in_dims=(None, 0))(p, torch.randn(4, 3, device=device))
ms = [nn.Linear(3, 2).to(device) for _ in range(3)]; p, b = torch.func.stack_module_state(ms); torch.vmap(lambda p, b, x: torch.func.functional_call(ms[0], (p, b), x), in_dims=(0, 0, None))(p, b, torch.ones(2, 3, device=device))
torch.vmap(lambda x: x + torch.randn(3, device=device), randomness="different")(torch.zeros(2, 3, device=device))
torch.vmap(lambda x: x + torch.randn(3, device=device), randomness="same")(torch.zeros(2, 3, device=device))
torch.vmap(lambda x: F.dropout(x, .5), randomness="different")(torch.ones(2, 3, device=device))
torch.vmap(torch.vmap(lambda x, y: x * y))(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
torch.vmap(lambda x: torch.where(x > 0, x, 0.))(torch.randn(2, 3, device=device))
torch.vmap(lambda x: x.clone().index_fill_(0, torch.tensor([0], device=device), 5.))(torch.randn(2, 3, device=device))
torch.vmap(lambda x: x[1:])(torch.randn(2, 3, device=device))
torch.vmap(lambda x, i: x[i])(torch.randn(2, 3, device=device), torch.tensor([0, 2], device=device))
torch.vmap(lambda x: torch.linalg.inv(x))(torch.randn(2, 3, 3, device=device))
torch.vmap(lambda x: F.conv1d(x, torch.ones(1, 1, 2, device=device)))(torch.randn(2, 1, 1, 5, device=device))
torch.vmap(lambda x: x.softmax(-1), chunk_size=1)(torch.randn(3, 4, device=device))
torch.func.grad(torch.func.grad(lambda x: x.sin()))(torch.tensor(1., device=device))
torch.func.vmap(torch.func.jacrev(lambda x: x ** 2))(torch.randn(2, 3, device=device))
x = torch.randn(2, 3, device=device, requires_grad=True); torch.vmap(lambda x: x * 2)(x).sum().backward(); x
torch.func.functionalize(lambda x: x.clone().add_(1))(torch.ones(3, device=device))
torch.func.jacrev(lambda x, y: x * y, argnums=(0, 1))(torch.ones(2, device=device), torch.ones(2, device=device))
torch.func.jacrev(lambda x: {"a": x * 2, "b": x.sum()})(torch.ones(2, device=device))
torch.func.grad(lambda x: (x.sum(), {"aux": x * 2}), has_aux=True)(torch.ones(2, device=device))
""",
    "losses": """
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.cross_entropy(x, torch.tensor([0, 1, 2, 0], device=device), weight=torch.tensor([1., 2., 3.], device=device), label_smoothing=.1), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.cross_entropy(x, torch.tensor([0, 1, -100, 0], device=device), reduction="none"), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.cross_entropy(x, torch.randn(4, 3, device=device).softmax(-1)), x)
x = torch.randn(4, 3, 5, 5, device=device, requires_grad=True); backward(F.cross_entropy(x, torch.randint(3, (4, 5, 5), device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.nll_loss(F.log_softmax(x, 1), torch.tensor([0, 1, 2, 0], device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); t = torch.rand(4, 3, device=device); [backward(f(x, t), x) for f in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits, F.soft_margin_loss, F.kl_div, F.poisson_nll_loss)]
x = torch.randn(4, 3, device=device, requires_grad=True); t = torch.rand(4, 3, device=device); backward(F.binary_cross_entropy(x.sigmoid(), t), x)
x = torch.randn(4, 3, device=device, requires_grad=True); t = torch.rand(4, 3, device=device); backward(F.binary_cross_entropy_with_logits(x, t, pos_weight=torch.tensor(2., device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.gaussian_nll_loss(x, torch.zeros(4, 3, device=device), torch.ones(4, 3, device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.multi_margin_loss(x, torch.tensor([0, 1, 2, 0], device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.multilabel_margin_loss(x, torch.tensor([[0, 1, -1]] * 4, device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(F.multilabel_soft_margin_loss(x, torch.ones(4, 3, device=device)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); y = torch.randn(4, 3, device=device); t = torch.tensor([1., -1, 1, 1], device=device); [backward(F.cosine_embedding_loss(x, y, t), x), backward(F.margin_ranking_loss(x[:, 0], y[:, 0], t), x), backward(F.hinge_embedding_loss(x[:, 0], t), x), backward(F.triplet_margin_loss(x, y, y + 1), x), backward(F.triplet_margin_with_distance_loss(x, y, y + 1), x)]
x = torch.randn(6, 2, 5, device=device, requires_grad=True); backward(F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2], [3, 4]], device=device), torch.tensor([6, 5], device=device), torch.tensor([2, 1], device=device)), x)
x = torch.randn(6, 2, 5, device=device, requires_grad=True); backward(F.ctc_loss(x.log_softmax(2), torch.tensor([1, 2, 3], device=device), (6, 5), (2, 1), zero_infinity=True), x)
x = torch.randn(6, 2, 5, device=device, requires_grad=True); backward(nn.CTCLoss(reduction="none")(x.log_softmax(2), torch.tensor([[1, 2], [3, 4]]).to(device), torch.tensor([6, 6]), torch.tensor([2, 2])), x)
x = torch.randn(6, 2, 5, device=device, requires_grad=True); backward(nn.CTCLoss(blank=4)(x.log_softmax(2), torch.tensor([[1, 2], [3, 0]], dtype=torch.int).to(device), torch.tensor([6, 6], dtype=torch.int), torch.tensor([2, 2], dtype=torch.int)), x)
x = torch.randn(4, 3, device=device, requires_grad=True); backward(nn.AdaptiveLogSoftmaxWithLoss(3, 10, [2, 5]).to(device)(x, torch.tensor([0, 3, 7, 9], device=device)).loss, x)
""",
    "layers": """
m = nn.Linear(3, 2).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.Bilinear(3, 3, 2).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x, x + 1), x, m)
m = nn.Conv1d(3, 4, 3, padding=1, stride=2).to(device); x = torch.randn(2, 3, 7, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.Conv2d(4, 4, 3, padding="same", groups=2, padding_mode="reflect").to(device); x = torch.randn(2, 4, 6, 6, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.Conv2d(3, 8, 3, dilation=2).to(device, memory_format=torch.channels_last); x = torch.randn(2, 3, 8, 8, device=device).to(memory_format=torch.channels_last).requires_grad_(); backward(m(x), x, m)
m = nn.Conv3d(2, 3, 2).to(device); x = torch.randn(1, 2, 4, 4, 4, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1).to(device); x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.ConvTranspose1d(3, 4, 3).to(device); x = torch.randn(2, 3, 4, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.BatchNorm1d(3).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.BatchNorm2d(3).to(device); x = torch.randn(4, 3, 2, 2, device=device, requires_grad=True); m(x); m.eval(); backward(m(x).square(), x, m)
m = nn.BatchNorm2d(3, momentum=None, affine=False).to(device); x = torch.randn(4, 3, 2, 2, device=device, requires_grad=True); m(x); m(x * 2); backward(m(x).square(), x, m)
m = nn.BatchNorm2d(3).to(device); x = torch.randn(4, 3, 2, 2, device=device).to(memory_format=torch.channels_last).requires_grad_(); backward(m(x).square(), x, m)
m = nn.BatchNorm3d(2, track_running_stats=False).to(device); x = torch.randn(2, 2, 2, 2, 2, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.LayerNorm(3).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.RMSNorm(3).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.GroupNorm(2, 4).to(device); x = torch.randn(4, 4, 3, 3, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.GroupNorm(2, 4).to(device); x = torch.randn(4, 4, 3, 3, device=device).to(memory_format=torch.channels_last).requires_grad_(); backward(m(x).square(), x, m)
m = nn.InstanceNorm2d(4, affine=True, track_running_stats=True).to(device); x = torch.randn(4, 4, 3, 3, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.LocalResponseNorm(2).to(device); x = torch.randn(4, 4, 3, 3, device=device, requires_grad=True); backward(m(x).square(), x, m)
m = nn.Embedding(5, 3, padding_idx=0).to(device); i = torch.tensor([[0, 1], [1, 4]], device=device); backward(m(i), m)
m = nn.Embedding(5, 3, max_norm=1.).to(device); i = torch.tensor([[0, 1], [1, 4]], device=device); backward(m(i), m)
m = nn.Embedding(5, 3, scale_grad_by_freq=True).to(device); i = torch.tensor([[0, 1], [1, 4]], device=device); backward(m(i), m)
m = nn.Embedding(5, 3, sparse=True).to(device); i = torch.tensor([[0, 1], [1, 4]], device=device); backward(m(i), m)
m = nn.Embedding(5, 3, sparse=True).to(device); m(torch.tensor([0, 1, 1], device=device)).sum().backward(); m(torch.tensor([2], device=device)).sum().backward(); [m, m.weight.grad.coalesce()]
m = nn.Embedding.from_pretrained(torch.arange(6.).view(3, 2), freeze=False).to(device); backward(m(torch.tensor([0, 2], device=device)), m)
m = nn.EmbeddingBag(5, 3, mode="sum").to(device); backward(m(torch.tensor([0, 1, 4], device=device), torch.tensor([0, 2], device=device)), m)
m = nn.EmbeddingBag(5, 3, mode="mean", padding_idx=1).to(device); backward(m(torch.tensor([[0, 1], [1, 4]], device=device)), m)
m = nn.EmbeddingBag(5, 3, mode="max").to(device); backward(m(torch.tensor([[0, 1], [1, 4]], device=device)), m)
m = nn.EmbeddingBag(5, 3, mode="sum").to(device); backward(m(torch.tensor([0, 1, 4], device=device), torch.tensor([0, 2], device=device), per_sample_weights=torch.tensor([1., 2., 3.], device=device)), m)
m = nn.EmbeddingBag(5, 3, mode="sum", sparse=True, include_last_offset=True).to(device); backward(m(torch.tensor([0, 1, 4], device=device), torch.tensor([0, 2, 3], device=device)), m)
x = torch.randn(4, 3, device=device, requires_grad=True); [backward(f(x), x) for f in (F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.celu, F.gelu, F.silu, F.mish, F.softplus, F.softsign, F.tanhshrink, F.softshrink, F.hardshrink, F.hardtanh, F.hardsigmoid, F.hardswish, F.logsigmoid, F.sigmoid, F.tanh)]
x = torch.randn(4, 4, device=device, requires_grad=True); [backward(f(x), x) for f in (lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softmax(x, 1).square(), lambda x: F.log_softmax(x, 1).square(), lambda x: F.softmin(x, 0).square(), F.glu, lambda x: F.threshold(x, .1, 5), lambda x: F.normalize(x).square(), lambda x: F.cosine_similarity(x, x + 1))]
x = torch.randn(4, 4, device=device, requires_grad=True); [backward(F.rrelu(x, training=True), x), backward(F.gumbel_softmax(x), x), backward(F.gumbel_softmax(x, hard=True), x), backward(F.dropout(x), x), backward(F.alpha_dropout(x, training=True), x), backward(F.feature_alpha_dropout(x, training=True), x)]
m = nn.PReLU(3).to(device); x = torch.randn(4, 3, device=device, requires_grad=True); backward(m(x), x, m)
x = torch.randn(2, 3, 8, 8, device=device, requires_grad=True); [backward(f(x), x) for f in (lambda x: F.max_pool2d(x, 2), lambda x: F.avg_pool2d(x, 3, 2, 1), lambda x: F.adaptive_avg_pool2d(x, (3, 2)), lambda x: F.adaptive_max_pool2d(x, 3), lambda x: F.lp_pool2d(x, 2, 2), lambda x: F.fractional_max_pool2d(x, 2, 4), lambda x: F.adaptive_avg_pool2d(x, 1))]
x = torch.randn(2, 3, 8, device=device, requires_grad=True); [backward(f(x), x) for f in (lambda x: F.max_pool1d(x, 2), lambda x: F.avg_pool1d(x, 2), lambda x: F.adaptive_avg_pool1d(x, 3), lambda x: F.adaptive_max_pool1d(x, 3))]
x = torch.randn(1, 2, 4, 4, 4, device=device, requires_grad=True); [backward(f(x), x) for f in (lambda x: F.max_pool3d(x, 2), lambda x: F.avg_pool3d(x, 2), lambda x: F.adaptive_avg_pool3d(x, 2))]
x = torch.randn(2, 3, 8, 8, device=device, requires_grad=True); o, i = F.max_pool2d(x, 2, return_indices=True); backward(F.max_unpool2d(o, i, 2), x, i)
x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); [backward(F.interpolate(x, scale_factor=2, mode=m), x) for m in ("nearest", "bilinear", "bicubic", "area", "nearest-exact")]
x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); [backward(F.interpolate(x, size=(3, 5), mode="bilinear", align_corners=True, antialias=a), x) for a in (False, True)]
x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); g = F.affine_grid(torch.eye(2, 3, device=device).expand(2, 2, 3) * .9, (2, 3, 4, 4), align_corners=False); [backward(F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=False), x) for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection")]
x = torch.randn(2, 4, 4, 4, device=device, requires_grad=True); [backward(f(x), x) for f in (lambda x: F.pixel_shuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), lambda x: F.channel_shuffle(x, 2), lambda x: F.unfold(x, 2), lambda x: F.fold(F.unfold(x, 2), 4, 2), lambda x: F.pad(x, (1, 1)), lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), lambda x: F.pad(x, (-1, 1), value=3))]
m = nn.MultiheadAttention(4, 2).to(device); x = torch.randn(3, 2, 4, device=device, requires_grad=True); backward(m(x, x, x), x, m)
m = nn.MultiheadAttention(4, 2, batch_first=True, dropout=.1).to(device); x = torch.randn(2, 3, 4, device=device, requires_grad=True); backward(m(x, x, x, need_weights=False, key_padding_mask=torch.tensor([[False, False, True]] * 2, device=device)), x, m)
m = nn.MultiheadAttention(4, 2, batch_first=True, kdim=3, vdim=5, add_bias_kv=True, add_zero_attn=True).to(device); q = torch.randn(2, 3, 4, device=device); backward(m(q, torch.randn(2, 3, 3, device=device), torch.randn(2, 3, 5, device=device), average_attn_weights=False), m)
m = nn.MultiheadAttention(4, 2, batch_first=True).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.no_grad()(lambda: m(x, x, x))()
m = nn.MultiheadAttention(4, 2).to(device); x = torch.randn(3, 2, 4, device=device, requires_grad=True); backward(m(x, x, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(3, device=device), is_causal=True, need_weights=False), x, m)
m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).to(device); x = torch.randn(2, 3, 4, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu", norm_first=True).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.no_grad()(lambda: m(x))()
m = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.inference_mode()(lambda: m(x).clone())()
m = nn.TransformerDecoderLayer(4, 2, 8).to(device); x = torch.randn(3, 2, 4, device=device, requires_grad=True); backward(m(x, x + 1), x, m)
m = nn.Transformer(4, 2, 1, 1, 8, dropout=0).to(device); x = torch.randn(3, 2, 4, device=device, requires_grad=True); backward(m(x, x + 1, tgt_mask=m.generate_square_subsequent_mask(3, device=device)), x, m)
q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q), q)
q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=.3), q)
q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(3, 3, dtype=torch.bool, device=device).tril()), q)
q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, attn_mask=torch.randn(2, 1, 3, 3, device=device)), q)
q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, dropout_p=.5), q)
q = torch.randn(2, 4, 3, 4, device=device, requires_grad=True); k = torch.randn(2, 2, 3, 4, device=device); backward(F.scaled_dot_product_attention(q, k, k, enable_gqa=True), q)
q = torch.randn(2, 3, 4, device=device, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q), q)
q = torch.randn(2, 2, 3, 4, device=device, dtype=torch.bfloat16, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q), q)
q = torch.randn(2, 2, 3, 4, device=device, dtype=torch.float64, requires_grad=True); backward(F.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(3, 3, device=device, dtype=torch.float64)), q)
from torch.nn.attention import sdpa_kernel, SDPBackend; q = torch.randn(2, 2, 3, 4, device=device, requires_grad=True); c = sdpa_kernel(SDPBackend.MATH); c.__enter__(); r = backward(F.scaled_dot_product_attention(q, q, q), q); c.__exit__(None, None, None); r
m = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (2, 6)), nn.Identity()).to(device); m(torch.arange(24., device=device).view(2, 3, 4))
m = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.ModuleList([nn.ReLU(), nn.Linear(2, 1)])}).to(device); backward(m["b"][1](m["b"][0](m["a"](torch.ones(1, 2, device=device)))), m)
m = nn.Upsample(scale_factor=2).to(device); m(torch.randn(1, 1, 2, 2, device=device))
m = nn.Softmax2d().to(device); m(torch.randn(1, 2, 2, 2, device=device))
m = nn.CosineSimilarity().to(device); m(torch.randn(2, 2, device=device), torch.randn(2, 2, device=device))
m = nn.PairwiseDistance().to(device); m(torch.randn(2, 2, device=device), torch.randn(2, 2, device=device))
F.one_hot(torch.tensor([0, 2], device=device))
[F.linear(torch.ones(2, 3, device=device), torch.ones(1, 3, device=device)), F.embedding(torch.tensor([0], device=device), torch.ones(2, 3, device=device))]
nn.init.orthogonal_(torch.empty(3, 3, device=device))
[nn.init.xavier_uniform_(torch.empty(3, 3, device=device)), nn.init.kaiming_normal_(torch.empty(3, 3, device=device)), nn.init.trunc_normal_(torch.empty(3, 3, device=device)), nn.init.sparse_(torch.empty(3, 3, device=device), .5), nn.init.dirac_(torch.empty(3, 3, 3, device=device)), nn.init.eye_(torch.empty(3, 3, device=device))]
nn.Linear(3, 2, device=device)
nn.LSTM(3, 2, device=device)
nn.TransformerEncoderLayer(4, 2, 8, device=device, dtype=torch.float64)
m = nn.Linear(3, 2, device="meta"); m = m.to_empty(device=device); m.reset_parameters(); m
""",
    "rnn": """
m = nn.RNN(3, 4).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.GRU(3, 4, 2, bidirectional=True, batch_first=True).to(device); x = torch.randn(2, 5, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.LSTM(3, 4, 2, bidirectional=True, dropout=.5).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.LSTM(3, 4, proj_size=2).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.LSTM(3, 4).to(device); x = torch.randn(5, 2, 3, device=device); torch.no_grad()(lambda: m(x))()
m = nn.LSTM(3, 4).to(device).double(); x = torch.randn(5, 2, 3, device=device, dtype=torch.float64, requires_grad=True); backward(m(x), x, m)
m = nn.LSTMCell(3, 4).to(device); x = torch.randn(2, 3, device=device, requires_grad=True); backward(m(x)[0], x, m)
m = nn.GRUCell(3, 4).to(device); x = torch.randn(2, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.RNNCell(3, 4, nonlinearity="relu").to(device); x = torch.randn(2, 3, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.GRU(3, 4).to(device); x = torch.randn(5, 3, device=device, requires_grad=True); backward(m(x, torch.zeros(1, 4, device=device)), x, m)
p = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 2, device=device), torch.tensor([5, 3, 2])); [p, nn.utils.rnn.pad_packed_sequence(p)]
p = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 5, 2, device=device), [2, 5, 3], batch_first=True, enforce_sorted=False); [p, nn.utils.rnn.pad_packed_sequence(p, batch_first=True, padding_value=-1, total_length=6)]
p = nn.utils.rnn.pack_sequence([torch.ones(3, device=device), torch.zeros(2, device=device)]); [p, p.to(torch.float64), nn.utils.rnn.unpack_sequence(p)]
p = nn.utils.rnn.pack_sequence([torch.ones(2), torch.zeros(3)], enforce_sorted=False).to(device); [p, p.cpu()]
nn.utils.rnn.pad_sequence([torch.ones(3, device=device), torch.zeros(2, device=device)], batch_first=True, padding_value=9)
nn.utils.rnn.unpad_sequence(torch.ones(3, 2, device=device), torch.tensor([3, 2]))
x = torch.randn(5, 3, 2, device=device, requires_grad=True); m = nn.GRU(2, 3).to(device); o, h = m(nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2])); backward(nn.utils.rnn.pad_packed_sequence(o)[0], x, m, h)
x = torch.randn(5, 3, 2, device=device, requires_grad=True); m = nn.LSTM(2, 3, bidirectional=True).to(device); o, h = m(nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)); backward(nn.utils.rnn.pad_packed_sequence(o)[0], x, m, h)
m = nn.LSTM(3, 4).to(device); m.flatten_parameters(); m.all_weights
m = nn.GRU(3, 4).to(device).eval(); x = torch.randn(5, 2, 3, device=device); torch.inference_mode()(lambda: [t.clone() for t in m(x)])()
""",
    "optimizers": """
[fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.SGD, lr=.1, foreach=f), torch.ones(2, 3, device=device)) for f in (None, True, False)]
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.SGD, lr=.1, momentum=.9, nesterov=True, weight_decay=.1), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.SGD, lr=.1, momentum=.9, fused=True), torch.ones(2, 3, device=device))
[fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adam, lr=.1, foreach=f), torch.ones(2, 3, device=device)) for f in (True, False)]
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adam, lr=.1), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adam, lr=.1, amsgrad=True, weight_decay=.1, maximize=True), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adam, lr=.1, fused=True), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.AdamW, lr=.1, fused=True, amsgrad=True), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adam, lr=.1, differentiable=False, foreach=False), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.AdamW, lr=torch.tensor(.1), foreach=False), torch.ones(2, 3, device=device))
[fitted(nn.Linear(3, 1).to(device), o, torch.ones(2, 3, device=device)) for o in (torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.RMSprop)]
[fitted(nn.Linear(3, 1).to(device), o, torch.ones(2, 3, device=device)) for o in (torch.optim.Rprop, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD)]
[fitted(nn.Linear(3, 1).to(device), functools.partial(o, foreach=True), torch.ones(2, 3, device=device)) for o in (torch.optim.Adagrad, torch.optim.Adadelta, torch.optim.Adamax, torch.optim.RMSprop)]
[fitted(nn.Linear(3, 1).to(device), functools.partial(o, foreach=True), torch.ones(2, 3, device=device)) for o in (torch.optim.Rprop, torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD)]
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.RMSprop, momentum=.9, centered=True), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), torch.optim.LBFGS, torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.LBFGS, line_search_fn="strong_wolfe"), torch.ones(2, 3, device=device))
fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adagrad, fused=True), torch.ones(2, 3, device=device))
m = nn.Embedding(5, 3, sparse=True).to(device); fitted(m, torch.optim.SparseAdam, torch.tensor([0, 1, 1], device=device))
m = nn.Embedding(5, 3, sparse=True).to(device); fitted(m, functools.partial(torch.optim.SGD, lr=.1), torch.tensor([0, 1, 1], device=device))
m = nn.Embedding(5, 3, sparse=True).to(device); fitted(m, functools.partial(torch.optim.Adagrad, lr=.1), torch.tensor([0, 1, 1], device=device))
m = nn.Linear(3, 3, bias=False).to(device); fitted(m, torch.optim.Adafactor, torch.ones(2, 3, device=device))
m = nn.Linear(3, 3, bias=False).to(device); fitted(m, torch.optim.Muon, torch.ones(2, 3, device=device))
m = nn.Linear(3, 1).to(device); m, o, _ = fitted(m, torch.optim.Adam, torch.ones(2, 3, device=device)); n = torch.optim.Adam(m.parameters()); n.load_state_dict(copy.deepcopy(o.state_dict())); n
m = nn.Linear(3, 1).to(device); m, o, _ = fitted(m, torch.optim.Adam, torch.ones(2, 3, device=device)); n = torch.optim.Adam(m.parameters()); n.load_state_dict(saved(o.state_dict())); n
m = nn.Linear(3, 1).to(device); m, o, _ = fitted(m, torch.optim.Adam, torch.ones(2, 3, device=device)); n = torch.optim.Adam(m.parameters()); n.load_state_dict(saved(o.state_dict(), map_location="cpu")); [n, [v.device.type == torch.device(device).type for s in n.state.values() for k, v in s.items() if k != "step"], [s["step"].device.type for s in n.state.values()]]
m = nn.Linear(3, 1).to(device); o = torch.optim.SGD([{"params": [m.weight], "lr": .1}, {"params": [m.bias]}], lr=.01); m(torch.ones(2, 3, device=device)).sum().backward(); o.step(); o.zero_grad(set_to_none=False); [m, o]
m = nn.Linear(3, 1).to(device); o = torch.optim.SGD(m.parameters(), lr=.1); s = torch.optim.lr_scheduler.OneCycleLR(o, .1, 10); r = []; [(o.step(), s.step(), r.append(s.get_last_lr())) for _ in range(4)]; r
m = nn.Linear(3, 1).to(device); o = torch.optim.SGD(m.parameters(), lr=.1); s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0); [s.step(torch.tensor(v, device=device)) for v in (1., 2., 3.)]; [o, s.state_dict()["best"]]
m = nn.Linear(3, 1).to(device); a = torch.optim.swa_utils.AveragedModel(m); m(torch.ones(1, 3, device=device)).sum().backward(); torch.optim.SGD(m.parameters(), lr=.1).step(); a.update_parameters(m); a.update_parameters(m); a
m = nn.Linear(3, 1).to(device); a = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(.9)); a.update_parameters(m); a.update_parameters(m); a
m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).to(device); torch.optim.swa_utils.update_bn([torch.randn(4, 3, device=device)], m); m
m = nn.Linear(3, 1).to(device); m(torch.ones(1, 3, device=device)).sum().backward(); [nn.utils.clip_grad_norm_(m.parameters(), .1), m]
m = nn.Linear(3, 1).to(device); m(torch.ones(1, 3, device=device)).sum().backward(); [nn.utils.clip_grad_norm_(m.parameters(), .1, norm_type="inf", foreach=False, error_if_nonfinite=True), m]
m = nn.Linear(3, 1).to(device); m(torch.ones(1, 3, device=device)).sum().backward(); nn.utils.clip_grad_value_(m.parameters(), .1); [m, nn.utils.get_total_norm([p.grad for p in m.parameters()])]
m = nn.Linear(3, 1).to(device); v = nn.utils.parameters_to_vector(m.parameters()); nn.utils.vector_to_parameters(v * 2, m.parameters()); [v, m]
""",
    "serialization": """
saved(torch.arange(3., device=device, requires_grad=True))
saved([torch.arange(3., device=device), {"a": torch.ones(2, device=device), "b": (1, "x")}])
saved(torch.arange(3., device=device), map_location="cpu")
saved(torch.arange(3.), map_location=device)
saved(torch.arange(3.), map_location=torch.device(device))
saved(torch.arange(3., device=device), map_location={"cpu": "cpu", str(torch.device(device)): "cpu"})
saved(nn.Linear(2, 2).to(device))
saved(nn.Linear(2, 2).to(device).state_dict(), weights_only=True)
saved(nn.Linear(2, 2).state_dict(), map_location=device, weights_only=True)
saved(nn.Linear(2, 2).to(device), map_location="cpu")
saved(nn.Parameter(torch.ones(2, device=device)))
saved(nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)).to(device).state_dict())
x = torch.arange(6., device=device); a, b = saved([x, x[2:4]]); a.zero_(); b
x = torch.arange(6., device=device); a, b = pickled([x, x]); [a is b, a]
x = torch.arange(6., device=device); a, b = saved([x, x]); [a is b, a]
m = nn.Linear(2, 2).to(device); m.bias = nn.Parameter(m.weight.data[0]); saved(m)
m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(device); m[1].weight = m[0].weight; n = saved(m); [n, n[0].weight is n[1].weight]
m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).to(device); m[1].weight = m[0].weight; n = copy.deepcopy(m); [n, n[0].weight is n[1].weight]
m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)); m[1].weight = m[0].weight; m.to(device); [m, m[0].weight is m[1].weight]
pickled(torch.arange(6., device=device).view(2, 3).t())
saved(torch.arange(6., device=device).view(2, 3).t())
saved(torch.arange(6., device=device)[2:4])
pickled(torch.arange(6., device=device)[::2])
saved(torch.randn(2, dtype=torch.cfloat, device=device).conj())
saved(torch.ones(2, dtype=torch.bfloat16, device=device))
saved(torch.ones(2, 3, 4, 4, device=device).to(memory_format=torch.channels_last))
x = torch.ones(2, device=device); x.tag = "a"; [copy.deepcopy(x).tag, copy.copy(x).tag, pickled(x).tag, saved(x).tag]
saved(torch.ones(2, 3, device=device).expand(2, 2, 3))
torch.ones(3, device=device).expand(2, 3).clone()
copy.deepcopy(torch.ones(3, device=device).expand(2, 3))
copy.deepcopy(torch.arange(6., device=device).view(2, 3).t())
copy.deepcopy(torch.arange(6., device=device)[2:4])
x = torch.ones(2, device=device, requires_grad=True); x.register_hook(lambda g: g * 2); y = copy.deepcopy(x); y.sum().backward(); y
m = nn.Linear(2, 2).to(device); m.register_forward_hook(lambda m, i, o: o * 2); n = copy.deepcopy(m); n(torch.ones(1, 2, device=device))
m = nn.Linear(2, 2).to(device); n = nn.Linear(2, 2).to(device); n.load_state_dict(m.state_dict()); n
m = nn.Linear(2, 2).to(device); n = nn.Linear(2, 2).to(device); n.load_state_dict({k: v.cpu() for k, v in m.state_dict().items()}); [n, n.weight.device.type == torch.device(device).type]
m = nn.Linear(2, 2).to(device); n = nn.Linear(2, 2, device="meta"); n.load_state_dict(m.state_dict(), assign=True); n
m = nn.Linear(2, 2).to(device); s = m.state_dict(keep_vars=True); [s["weight"] is m.weight, s]
m = nn.Linear(2, 2).to(device); n = nn.Linear(2, 2); n.load_state_dict(m.state_dict()); [n, n.weight.device.type]
m = nn.BatchNorm1d(2).to(device); m.load_state_dict(nn.BatchNorm1d(2).state_dict()); [m, m.num_batches_tracked.device.type == torch.device(device).type]
nn.Linear(2, 2).to(device).load_state_dict({}, strict=False)
file = io.BytesIO(); torch.save(torch.arange(3., device=device), file, _use_new_zipfile_serialization=False); file.seek(0); torch.load(file)
""",
    "hooks": """
m = nn.Linear(2, 2).to(device); r = []; m.register_forward_hook(lambda m, i, o: r.append((i, o))); m.register_forward_pre_hook(lambda m, i: (i[0] * 2,)); m(torch.ones(1, 2, device=device)); r
m = nn.Linear(2, 2).to(device); r = []; m.register_full_backward_hook(lambda m, gi, go: r.append((gi, go))); m(torch.ones(1, 2, device=device, requires_grad=True)).sum().backward(); [r, m]
m = nn.Linear(2, 2).to(device); m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)); x = torch.ones(1, 2, device=device, requires_grad=True); m(x).sum().backward(); [x, m]
m = nn.Linear(2, 2).to(device); m.register_full_backward_pre_hook(lambda m, go: (go[0] * 3,)); x = torch.ones(1, 2, device=device, requires_grad=True); m(x).sum().backward(); [x, m]
m = nn.Linear(2, 2); m.weight.register_hook(lambda g: g * 3); m.to(device); m(torch.ones(1, 2, device=device)).sum().backward(); m
m = nn.Linear(2, 2).to(device); m.register_state_dict_post_hook(lambda m, s, p, l: s.update(extra=torch.ones(1, device=device))); m.state_dict()
m = nn.Linear(2, 2).to(device); m.register_load_state_dict_pre_hook(lambda m, s, *a: s.update(weight=s["weight"] * 2)); m.load_state_dict(m.state_dict()); m
m = nn.Linear(2, 2).to(device); o = torch.optim.SGD(m.parameters(), lr=.1); r = []; o.register_step_post_hook(lambda o, a, k: r.append(m.weight.detach().clone())); m(torch.ones(1, 2, device=device)).sum().backward(); o.step(); r
""",
    "modules": """
m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device); m.half().float().double(); m
m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device); m.requires_grad_(False); m.zero_grad(); m
m = nn.Linear(2, 2); p = m.weight; m.to(device); [p is m.weight, m]
m = nn.Linear(2, 2); m(torch.ones(1, 2)).sum().backward(); m.to(device); m
m = nn.Linear(2, 2).to(device); m(torch.ones(1, 2, device=device)).sum().backward(); n = copy.deepcopy(m); n
m = nn.Linear(2, 2).to(device); m(torch.ones(1, 2, device=device)).sum().backward(); m.cpu()
m = nn.Module(); m.register_buffer("b", torch.ones(2)); m.register_buffer("c", torch.zeros(1), persistent=False); m.register_parameter("p", None); m.to(device); [m, m.state_dict(), m.b.device.type == torch.device(device).type]
m = nn.Module(); m.a = nn.Parameter(torch.ones(2, device=device)); m.a.data.mul_(2); m.a.data = m.a.data + 1; m
m = nn.ParameterList([torch.ones(2), torch.zeros(1)]).to(device); m.append(torch.ones(1, device=device)); m
m = nn.ParameterDict({"a": torch.ones(2)}).to(device); m["b"] = nn.Parameter(torch.zeros(1, device=device)); [m, list(m.keys())]
m = nn.Linear(2, 2).to(device); m.apply(lambda s: nn.init.ones_(s.weight)); m
m = nn.Linear(2, 2).to(device); with_ = torch.no_grad(); with_.__enter__(); m.weight.copy_(torch.ones(2, 2)); m.bias.add_(1); with_.__exit__(None, None, None); m
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).to(device); x = torch.ones(1, 3, device=device); backward(m(x), m)
m = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)).to(device); x = torch.ones(1, 3, device=device); backward(m(x), m, m.weight)
m = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)).to(device); x = torch.ones(1, 3, device=device); backward(m(x), m)
m = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3).to(device), orthogonal_map="cayley"); x = torch.ones(1, 3, device=device); backward(m(x), m)
m = nn.utils.weight_norm(nn.Linear(3, 2)).to(device); x = torch.ones(1, 3, device=device); backward(m(x), m)
m = nn.utils.spectral_norm(nn.Linear(3, 2)).to(device); x = torch.ones(1, 3, device=device); backward(m(x), m)
m = nn.Linear(3, 3).to(device); P = type("P", (nn.Module,), {"forward": lambda self, w: w.triu() + w.triu(1).mT}); nn.utils.parametrize.register_parametrization(m, "weight", P()); backward(m(torch.ones(1, 3, device=device)), m)
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).to(device)); nn.utils.parametrize.remove_parametrizations(m, "weight"); m
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).to(device)); within(nn.utils.parametrize.cached(), lambda: m(torch.ones(1, 3, device=device)))
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2).to(device)); [m.state_dict(), copy.deepcopy(m)]
import torch.nn.utils.prune as prune; m = nn.Linear(3, 3).to(device); prune.l1_unstructured(m, "weight", .5); r = backward(m(torch.ones(1, 3, device=device)), m); prune.remove(m, "weight"); [r, m]
import torch.nn.utils.prune as prune; m = nn.Linear(3, 3).to(device); prune.random_structured(m, "weight", .5, dim=0); prune.ln_structured(m, "weight", .5, n=2, dim=1); m
m = nn.utils.fuse_conv_bn_eval(nn.Conv2d(1, 2, 1).to(device).eval(), nn.BatchNorm2d(2).to(device).eval()); m
m = nn.LazyLinear(2).to(device); [m(torch.ones(1, 3, device=device)), m]
m = nn.LazyLinear(2); [m(torch.ones(1, 3)), m.to(device)]
m = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d()).to(device); backward(m(torch.ones(1, 3, 4, 4, device=device)), m)
m = nn.LazyLinear(2, device=device); m(torch.ones(1, 3, device=device)); [m, type(m).__name__]
m = nn.LazyLinear(2).to(device); m.load_state_dict(nn.Linear(3, 2).to(device).state_dict()); m
""",
    "autocast": """
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); m = nn.Linear(3, 2).to(device); within(c, lambda: backward(m(x), m))
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); m = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3), nn.Linear(3, 1)).to(device); o = within(c, lambda: m(x)); o.sum().backward(); [o, m]
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); within(c, lambda: [x @ x.T, torch.einsum("ij,kj->ik", x, x), x + 1, (x @ x.T).dtype, torch.is_autocast_enabled(torch.device(device).type)])
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); m = nn.Conv2d(1, 2, 3).to(device); within(c, lambda: m(torch.ones(1, 1, 4, 4, device=device)))
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); within(c, lambda: within(torch.autocast(torch.device(device).type, enabled=False), lambda: x @ x.T))
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); m = nn.Linear(3, 3).to(device); x = torch.randn(2, 3, device=device); within(c, lambda: [within(torch.no_grad(), lambda: m(x)), m(x)])
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); m = nn.LSTM(3, 3).to(device); x = torch.randn(2, 1, 3, device=device); within(c, lambda: m(x)[0].dtype)
c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); within(c, lambda: [F.cross_entropy(x, torch.tensor([0, 1], device=device)), x.softmax(-1), x.exp(), x.sum(), F.mse_loss(x, x + 1), torch.cat([x, x.bfloat16()])])
x = torch.randn(2, 3, device=device); m = nn.Linear(3, 2).to(device).bfloat16(); m(x.bfloat16())
x = torch.randn(2, 3, device=device).half(); [x @ x.T, x.softmax(-1), x.sum(), F.layer_norm(x, (3,)), x.float()]
""",
    "compile": """
torch.compile(lambda x: x.sin() + 1, backend="eager")(torch.ones(2, device=device))
m = torch.compile(nn.Linear(2, 2).to(device), backend="eager"); x = torch.ones(1, 2, device=device); backward(m(x), m._orig_mod)
torch.jit.script(nn.Linear(2, 2).to(device))(torch.ones(1, 2, device=device))
torch.jit.trace(nn.Linear(2, 2).to(device), torch.ones(1, 2, device=device))(torch.zeros(1, 2, device=device))
torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to(device))(torch.ones(1, 2, device=device))
""",
    "saved tensors and attributes": """
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.saved_tensors_hooks(lambda t: t + torch.ones(4, device=device), lambda t: t - torch.ones(4, device=device)), lambda: (x * x).exp()); backward(y, x)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.saved_tensors_hooks(lambda t: torch.tensor(t.tolist()), lambda t: t.to(device)), lambda: (x * x).exp()); backward(y, x)
x = torch.arange(4., device=device, requires_grad=True); y = within(torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu().numpy() if not t.requires_grad else t.detach().cpu().numpy(), lambda t: torch.from_numpy(t).to(device)), lambda: (x * x).exp()); backward(y, x)
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts; x = torch.randn(3, 3, device=device, requires_grad=True); backward(checkpoint(lambda x: (x @ x).relu().exp(), x, use_reentrant=False, context_fn=functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])), x)
x = torch.arange(4., device=device, requires_grad=True); y = torch.utils.checkpoint.checkpoint(lambda x: torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False) * torch.ones(4, device=device), x, use_reentrant=False); backward(y, x)
torch.range(1, 3, device=device)
torch.range(1, 3, .5, dtype=torch.float64, device=torch.device(device))
s = torch.eye(3, device=device).to_sparse().requires_grad_(); torch.sparse.mm(s, torch.ones(3, 2, device=device)).sum().backward(); s.grad.coalesce()
x = torch.ones(2, device=device); x.tag = {"a": 1}; [copy.deepcopy(x).tag, copy.copy(x).tag, pickled(x).tag, saved(x).tag]
p = nn.Parameter(torch.ones(2, device=device)); p.tag = "a"; [hasattr(copy.deepcopy(p), "tag"), pickled(p).tag, saved(p).tag, copy.copy(p).tag, pickled(p)]
p = nn.Parameter(torch.ones(2, device=device)); p.sum().backward(); [copy.deepcopy(p), copy.copy(p), pickled(p), saved(p), copy.deepcopy([p, p])]
x = torch.ones(2, device=device, requires_grad=True); x.sum().backward(); [copy.deepcopy(x), copy.copy(x), pickled(x), saved(x)]
b = nn.Buffer(torch.ones(2, device=device), persistent=False); m = nn.Module(); m.b = b; m.to(device); [m, m.state_dict(), isinstance(m.b, nn.Buffer), isinstance(pickled(b), nn.Buffer), isinstance(copy.deepcopy(b), nn.Buffer)]
x = [torch.ones(2, device=device), torch.arange(3., device=device)]; torch._foreach_copy_(x, [torch.zeros(2), torch.ones(3)]); x
x = [torch.ones(2), torch.arange(3.)]; torch._foreach_copy_(x, [torch.zeros(2, device=device), torch.ones(3, device=device)]); x
x = [torch.ones(2, device=device), torch.arange(3.)]; torch._foreach_copy_(x, [torch.zeros(2, dtype=torch.int), torch.ones(1, device=device)]); x
[str(nn.Parameter(torch.ones(2, dtype=torch.half, device=device))), str(torch.ones(0, 3, dtype=torch.int, device=device)), str(torch.tensor("abc" == "abc", device=device)), str(torch.ones((), dtype=torch.half, device=device))]
""",
}

COPY = "`.to()` and `.cpu()` give the tensor itself on the CPU; a copy to or from a device has memory of its own, as on CUDA"
CASTS = "autocast casts as CUDA's does: layer_norm in float32, which the CPU's runs in bfloat16"
FAST = "the fused inference path is not taken for tensor subclasses; the other one rounds, and lays memory out, in its own way"
FLAG = "a sparse gradient is marked as coalesced, which it is; the values are the same"
GROUP_NORM = "the channels-last kernel is chosen in C++ by the device"
NODE = "only the graph node that torch makes for a view changed in place has another name"
PROD = "torch takes another formula for the gradient of products of tensor subclasses, which rounds in its own way"
RECURRENT = "oneDNN's fused recurrent layer is chosen in C++ by the device; the composed one rounds in its own way"
STORAGE = "storages of simulated tensors are the CPU's"
SUBCLASS = "tensors on simulated devices are of a subclass: `isinstance` tells what they are, `type` does not"
ZEROS = "only the sign of zeros: forward derivatives add zeros that the CPU never makes, and -0. + 0. is 0."

# program: why it is not equal, or does not run, on torch before 2.7
OLDER = {
    "x = torch.randn(5, device=device, requires_grad=True); x.cumprod(0).sum().backward(); x": PROD,
    "torch.vmap(lambda x, i: x[i])(torch.randn(2, 3, device=device), torch.tensor([0, 2], device=device))": "vmap takes no index",
    "fitted(nn.Linear(3, 1).to(device), functools.partial(torch.optim.Adagrad, fused=True), torch.ones(2, 3, device=device))": "Adagrad is fused on the CPU only",
    'x = torch.randn(5, 3, device=device); torch.vmap(lambda a: F.dropout(a, .5), randomness="same")(x)': (
        "dropout of tensor subclasses under vmap draws in another way"
    ),
    "m = nn.Linear(3, 3, bias=False).to(device); fitted(m, torch.optim.Muon, torch.ones(2, 3, device=device))": "there is no Muon",
    "x = torch.randn(4, 5, device=device, requires_grad=True); "
    "backward(x.cummax(1)[0] + x.cummin(0)[0] + x.sort(1)[0] + x.logcumsumexp(1) + x.cumprod(1), x)": PROD,
}

# which torch the next list is of: another one may have made some of them equal
LISTED_FOR = "2.13."
# program: why it is not equal
DIFFERENT = {
    "torch.func.hessian(lambda x: x.sin().sum())(torch.arange(3., device=device))": ZEROS,
    "torch.arange(6.).view(2, 3)[:, ::2].to(device)": COPY,
    "torch.ones(1).expand(3).to(device)": COPY,
    "torch.ones(2, 1).expand(2, 3).to(device)": COPY,
    "torch.arange(6.)[2:4].to(device)": COPY,
    "type(nn.Parameter(torch.ones(1, device=device))) is nn.Parameter": SUBCLASS,
    "type(torch.ones(1, device=device)) is torch.Tensor": SUBCLASS,
    "x = torch.randn(5, device=device, requires_grad=True); x.cumsum(0).prod().backward(); x": PROD,
    "x = torch.randn(5, 3, device=device, requires_grad=True); x.prod(1).sum().backward(); x": PROD,
    "m = nn.GroupNorm(2, 4).to(device); x = torch.randn(4, 4, 3, 3, device=device).to(memory_format=torch.channels_last).requires_grad_(); backward(m(x).square(), x, m)": GROUP_NORM,
    "m = nn.MultiheadAttention(4, 2, batch_first=True).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.no_grad()(lambda: m(x, x, x))()": FAST,
    'm = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, activation="gelu", norm_first=True).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.no_grad()(lambda: m(x))()': FAST,
    "m = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2).to(device).eval(); x = torch.randn(2, 3, 4, device=device); torch.inference_mode()(lambda: m(x).clone())()": FAST,
    "m = nn.RNN(3, 4).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)": RECURRENT,
    "m = nn.GRU(3, 4, 2, bidirectional=True, batch_first=True).to(device); x = torch.randn(2, 5, 3, device=device, requires_grad=True); backward(m(x), x, m)": RECURRENT,
    "m = nn.LSTM(3, 4, 2, bidirectional=True, dropout=.5).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)": RECURRENT,
    "m = nn.LSTM(3, 4, proj_size=2).to(device); x = torch.randn(5, 2, 3, device=device, requires_grad=True); backward(m(x), x, m)": RECURRENT,
    "m = nn.LSTM(3, 4).to(device); x = torch.randn(5, 2, 3, device=device); torch.no_grad()(lambda: m(x))()": RECURRENT,
    "m = nn.LSTM(3, 4).to(device).double(); x = torch.randn(5, 2, 3, device=device, dtype=torch.float64, requires_grad=True); backward(m(x), x, m)": RECURRENT,
    "m = nn.GRU(3, 4).to(device); x = torch.randn(5, 3, device=device, requires_grad=True); backward(m(x, torch.zeros(1, 4, device=device)), x, m)": RECURRENT,
    "x = torch.randn(5, 3, 2, device=device, requires_grad=True); m = nn.GRU(2, 3).to(device); o, h = m(nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2])); backward(nn.utils.rnn.pad_packed_sequence(o)[0], x, m, h)": RECURRENT,
    "x = torch.randn(5, 3, 2, device=device, requires_grad=True); m = nn.LSTM(2, 3, bidirectional=True).to(device); o, h = m(nn.utils.rnn.pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)); backward(nn.utils.rnn.pad_packed_sequence(o)[0], x, m, h)": RECURRENT,
    "s = torch.eye(3, device=device).to_sparse().requires_grad_(); torch.sparse.mm(s, torch.ones(3, 2, device=device)).sum().backward(); [s.grad, s.is_leaf]": FLAG,
    "x = torch.randn(2, 2, dtype=torch.cfloat); x.conj().to(device)": COPY,
    "torch.randn(2, dtype=torch.cfloat, device=device).conj().cpu()": COPY,
    "x = torch.arange(6., device=device, requires_grad=True); y = x.clone().view(2, 3); y[0].mul_(2); y.t()[2].add_(x[:2]); y.sum().backward(); [x, y]": NODE,
    "c = torch.autocast(torch.device(device).type, dtype=torch.bfloat16); x = torch.randn(2, 3, device=device); m = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3), nn.Linear(3, 1)).to(device); o = within(c, lambda: m(x)); o.sum().backward(); [o, m]": CASTS,
    "x = torch.arange(4., device=device); torch.empty(0, device=device).set_(x.untyped_storage(), 1, (2,), (1,))": STORAGE,
}
