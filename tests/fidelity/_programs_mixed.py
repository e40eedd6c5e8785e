"""Small programs that mix devices, by kind: each has one mistake.

A program is one line of Python: its last expression is its result, `device` is where it should run, `away` is where
the mistake is.
"""

# ruff: noqa: E501  a program is one line

from __future__ import annotations

MIXED = {
    "operators": """
x = torch.ones(3, device=device, requires_grad=True); backward(x * torch.arange(3.), x)
x = torch.ones(3, requires_grad=True); backward(x * torch.arange(3., device=device), x)
x = torch.ones(3, device=device, requires_grad=True); y = torch.arange(3., requires_grad=True); backward(x * y, x, y)
x = torch.ones(3, device=device); y = torch.arange(3.); y += x; y
x = torch.ones(3, device=device); y = torch.arange(3.); x += y; x
x = torch.ones(3, device=device, requires_grad=True); y = torch.zeros(3); y.add_(x); backward(y * y, x)
torch.add(torch.ones(3, device=device), torch.ones(3), alpha=2)
torch.lerp(torch.zeros(3, device=device), torch.ones(3), torch.full((3,), .5, device=device))
torch.addcmul(torch.ones(3, device=device), torch.ones(3), torch.ones(3, device=device))
torch.atan2(torch.ones(3), torch.ones(3, device=device))
torch.maximum(torch.arange(3., device=device), torch.ones(3))
torch.arange(3, device=device) == torch.arange(3)
torch.clamp(torch.arange(3., device=device), min=torch.ones(3))
x = torch.ones(2, 3, device=device, requires_grad=True); w = torch.ones(3, 4, requires_grad=True); backward(x @ w, x, w)
torch.addmm(torch.ones(2, 2), torch.ones(2, 3, device=device), torch.ones(3, 2, device=device))
torch.bmm(torch.ones(2, 2, 3, device=device), torch.ones(2, 3, 2))
torch.einsum("ij,jk->ik", torch.ones(2, 3, device=device), torch.ones(3, 2))
torch.tensordot(torch.ones(2, 3, device=device), torch.ones(3, 2), 1)
torch.linalg.solve(torch.eye(3, device=device), torch.ones(3, 1))
torch.linalg.lstsq(torch.eye(3, device=device), torch.ones(3, 1)).solution
torch.linalg.multi_dot([torch.ones(2, 3, device=device), torch.ones(3, 4), torch.ones(4, 2, device=device)])
torch.linalg.cross(torch.ones(3, device=device), torch.arange(3.))
torch.linalg.solve_triangular(torch.eye(3, device=device), torch.ones(3, 1), upper=True)
torch.linalg.vecdot(torch.ones(3, device=device), torch.arange(3.))
torch.cholesky_solve(torch.ones(3, 1), torch.eye(3, device=device))
torch.kron(torch.ones(2, device=device), torch.arange(2.))
torch.outer(torch.ones(2, device=device), torch.arange(2.))
torch.dot(torch.ones(2, device=device), torch.arange(2.))
torch.cdist(torch.ones(2, 3, device=device), torch.zeros(2, 3))
torch.inner(torch.ones(2, 3, device=device), torch.ones(2, 3))
torch.cdist(torch.ones(30, 3, device=device), torch.zeros(30, 3))
torch.baddbmm(torch.ones(2, 2, 2), torch.ones(2, 2, 3, device=device), torch.ones(2, 3, 2, device=device))
torch.cat([torch.ones(2, device=device), torch.zeros(2)])
torch.stack([torch.zeros(2), torch.ones(2, device=device)])
torch.hstack([torch.zeros(2), torch.ones(2, device=device)])
torch.cartesian_prod(torch.zeros(2), torch.ones(2, device=device))
torch.block_diag(torch.ones(2, 2), torch.ones(2, 2, device=device))
torch.bincount(torch.arange(4, device=device), torch.ones(4))
torch.tensor_split(torch.arange(4., device=device), torch.tensor([1, 2], device=device))
torch.complex(torch.ones(3, device=device), torch.ones(3))
torch.polar(torch.ones(3, device=device), torch.ones(3))
torch.stft(torch.arange(16., device=device), 4, window=torch.ones(4), return_complex=True)
torch.istft(torch.stft(torch.arange(16., device=device), 4, window=torch.ones(4, device=device), return_complex=True), 4, window=torch.ones(4))
torch.trapezoid(torch.ones(3, device=device), torch.arange(3.))
torch.cov(torch.ones(2, 3, device=device), aweights=torch.ones(3))
torch.cross(torch.ones(2, 3), torch.ones(2, 3, device=device), dim=1)
torch.quantile(torch.arange(5., device=device), torch.tensor([.1, .5]))
torch.normal(torch.zeros(3, device=device), torch.ones(3))
torch.normal(torch.zeros(3), torch.ones(3, device=device))
torch.distributions.Normal(torch.zeros(3, device=device), torch.ones(3)).rsample()
torch.distributions.Normal(torch.zeros(3, device=device), torch.ones(3, device=device)).log_prob(torch.ones(3))
torch.distributions.Categorical(torch.ones(3, device=device)).log_prob(torch.tensor([1, 2]))
torch.distributions.MultivariateNormal(torch.zeros(2, device=device), torch.eye(2)).log_prob(torch.ones(2, device=device))
torch.allclose(torch.ones(3, device=device), torch.ones(3))
torch.equal(torch.ones(3, device=device), torch.ones(3))
torch.sparse.mm(torch.eye(3).to_sparse().to(device), torch.ones(3, 2))
x = torch.zeros(3, device=device); x + torch.FloatTensor([1, 2, 3])
bool((torch.ones(3, device=device) == torch.ones(3)).all())
torch.ones(3, device=device) @ torch.ones(3)
total = torch.zeros(2); t = [torch.arange(2., device=device, requires_grad=True) for _ in range(3)]; [total.add_(a * 2) for a in t]; total.sum().backward(); [total, t]
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(4, 3).requires_grad_(); backward(torch.cdist(x, y), x, y)
x = torch.randn(30, 3).to(device).requires_grad_(); y = torch.randn(40, 3).requires_grad_(); backward(torch.cdist(x, y), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(3, 4).requires_grad_(); backward(torch.einsum("ij,jk->ik", x, y), x, y)
x = torch.eye(3).add(.1).to(device).requires_grad_(); y = torch.randn(3, 2).requires_grad_(); backward(torch.linalg.solve(x, y), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(2, 3).requires_grad_(); backward(torch.cat([x, y]), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(2, 3).requires_grad_(); backward(torch.stack([x, y]).sin(), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(2, 3).requires_grad_(); backward(torch.lerp(x, y, .3), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(2, 3).requires_grad_(); backward(torch.atan2(x, y), x, y)
x = torch.randn(2, 3).to(device).requires_grad_(); y = torch.randn(2, 3).requires_grad_(); backward(torch.maximum(x, y), x, y)
x = torch.rand(2, 3).to(device).requires_grad_(); y = torch.rand(2, 3).requires_grad_(); backward(torch.pow(x, y), x, y)
torch.distributions.Normal(torch.zeros(3, device=device, requires_grad=True), torch.ones(3)).sample()
torch.distributions.Categorical(logits=torch.ones(2, 3, device=device)).log_prob(torch.tensor([1, 2]))
t = torch.zeros(3, device=device); t.lerp_(torch.ones(3), .5); t.addcmul_(torch.ones(3, device=device), torch.ones(3, device=device)); t
t = torch.zeros(3); t.lerp_(torch.ones(3, device=device), .5); t
t = torch.zeros(2, 2); t.addmm_(torch.ones(2, 2, device=device), torch.ones(2, 2, device=device)); t
t = torch.zeros(3); t.clamp_(min=torch.ones(3, device=device)); t
a, b = torch.ones(3, device=device), torch.ones(3); a.mul_(b).add_(b, alpha=2).sub_(b); a
torch.sum(torch.stack([torch.ones(()).to(device), torch.tensor(2.)]))
sum([torch.ones(2, device=device), torch.ones(2), torch.ones(2, device=device)])
torch.logaddexp(torch.ones(2, device=device), torch.zeros(2))
torch.isclose(torch.ones(2, device=device), torch.zeros(2))
torch.roll(torch.arange(4., device=device), 1) - torch.arange(4.)
torch.corrcoef(torch.stack([torch.arange(3.).to(device), torch.tensor([1., 0, 2])]))
torch.gradient(torch.arange(4., device=device), spacing=(torch.arange(4.),))[0]
torch.trapz(torch.ones(3, device=device), torch.arange(3.))
torch.unique(torch.cat([torch.ones(2, device=device), torch.zeros(2)]))
torch.linalg.norm(torch.ones(3, device=device) - torch.ones(3))
torch.linalg.lstsq(torch.eye(3, device=device), torch.ones(3, 1))[0]
torch.triangular_solve(torch.ones(3, 1, device=device), torch.eye(3))[0]
torch.ormqr(torch.eye(3, device=device), torch.ones(3), torch.eye(3, device=device))
torch.lu_solve(torch.ones(3, 1), *torch.linalg.lu_factor(torch.eye(3, device=device)))
torch.addbmm(torch.zeros(2, 2), torch.ones(1, 2, 2, device=device), torch.ones(1, 2, 2, device=device))
torch.renorm(torch.ones(2, 2, device=device), 2, 0, 1.) @ torch.ones(2)
w = torch.arange(3., requires_grad=True); [(w * torch.ones(3, device=device)).sum().backward() for _ in range(3)]; [w]
""",
    "indexing": """
torch.where(torch.tensor([True, False, True]), torch.ones(3, device=device), torch.zeros(3, device=device))
torch.where(torch.tensor([True, False, True], device=device), torch.ones(3), torch.zeros(3, device=device))
torch.meshgrid(torch.zeros(2), torch.ones(2, device=device), indexing="ij")
x = torch.zeros(4); x[torch.tensor([1, 2], device=device)] = 5.; x
x = torch.arange(4.); x[torch.tensor([1, 2], device=device)]
x = torch.arange(4.); x[torch.arange(4, device=device) > 1]
x = torch.zeros(4); x[torch.arange(4, device=device) > 1] = torch.ones(2, device=device); x
x = torch.zeros(4, device=device); x[torch.tensor([1, 2])] = torch.ones(2); x
x = torch.zeros(4, device=device); x[torch.arange(4) > 1] = torch.ones(2); x
x = torch.arange(4., requires_grad=True); y = x * 1; y[torch.tensor([1, 2], device=device)] = 5.; backward(y * y, x)
torch.arange(4.).index_select(0, torch.tensor([1], device=device))
torch.arange(4., device=device).index_select(0, torch.tensor([1]))
torch.arange(4., device=device).gather(0, torch.tensor([1]))
torch.arange(4., device=device).scatter(0, torch.tensor([1]), torch.ones(1, device=device))
torch.arange(4., device=device).scatter_add_(0, torch.tensor([1], device=device), torch.ones(1))
torch.zeros(4, device=device).index_copy_(0, torch.tensor([1]), torch.ones(1, device=device))
torch.zeros(4, device=device).index_fill_(0, torch.tensor([1]), 3.)
torch.arange(4., device=device).masked_fill(torch.arange(4) > 1, 3.)
torch.arange(4., device=device).masked_fill_(torch.arange(4) > 1, 3.)
torch.arange(4.).masked_fill_(torch.arange(4, device=device) > 1, 3.)
torch.arange(4., device=device).masked_select(torch.arange(4) > 1)
torch.arange(4., device=device).take(torch.tensor([1]))
torch.arange(4., device=device).put_(torch.tensor([1]), torch.ones(1, device=device))
torch.arange(4., device=device).take_along_dim(torch.tensor([1]), 0)
torch.arange(4., device=device).repeat_interleave(torch.tensor([1, 2, 1, 1]))
torch.bucketize(torch.arange(4., device=device), torch.arange(3.))
torch.searchsorted(torch.arange(3.), torch.arange(4., device=device))
torch.isin(torch.arange(4, device=device), torch.arange(2))
torch.gather(torch.ones(2, 2), 0, torch.zeros(2, 2, dtype=torch.long, device=device))
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4); y[torch.tensor([0, 1], device=device)] = x[:2]; (x * y).sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4); y.scatter_(0, torch.tensor([0, 1], device=device), x[:2] * 1); (x * y).sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4); y.index_add_(0, torch.tensor([0, 1], device=device), x[:2] * 1); (x * y).sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4); y.masked_fill_(x > 1, 2.); (x * y).sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4, requires_grad=True); z = y * 1; z[1:3].mul_(x[:2]); z.sum().backward(); [x, y]
x = torch.arange(4., device=device, requires_grad=True); y = torch.ones(4); y[1:3] *= x[:2]; y.sum().backward(); [x, y]
x = torch.randn(4).to(device).requires_grad_(); backward(x.gather(0, torch.tensor([1, 1])), x)
x = torch.randn(4).to(device).requires_grad_(); backward(x.index_select(0, torch.tensor([1, 1])), x)
x = torch.randn(4).to(device).requires_grad_(); backward(x.masked_fill(torch.tensor([True, False, True, False]), 2.) * 2, x)
x = torch.randn(4).to(device).requires_grad_(); backward(x.masked_select(torch.tensor([True, False, True, False])), x)
x = torch.randn(4).to(device).requires_grad_(); backward(x.repeat_interleave(torch.tensor([1, 2, 1, 0])), x)
t = torch.zeros(4); t.scatter_add_(0, torch.tensor([0, 1], device=device), torch.ones(2, device=device)); t
t = torch.zeros(4, 3); t[torch.tensor([0, 2], device=device), 1] += 2.; t
t = torch.zeros(4, 3); t[:, torch.tensor([True, False, True], device=device)] = torch.ones(4, 2, device=device); t
t = torch.zeros(4); t[torch.tensor([0, 1, 0], device=device)] += torch.ones(3, device=device); t
t = torch.zeros(4); t.index_put_((torch.tensor([0, 1, 0], device=device),), torch.ones(3, device=device), accumulate=True); t
torch.searchsorted(torch.arange(4., device=device), torch.tensor([1.5]))
torch.scatter_add(torch.zeros(3), 0, torch.tensor([0, 1], device=device), torch.ones(2, device=device))
x = torch.randn(4).requires_grad_(); backward(x[torch.tensor([1, 2], device=device)], x)
x = torch.randn(4).requires_grad_(); backward(x[torch.tensor([True, False, True, True], device=device)], x)
""",
    "layers and losses": """
torch.nn.functional.mse_loss(torch.ones(3, device=device), torch.zeros(3))
torch.nn.functional.huber_loss(torch.ones(3, device=device), torch.zeros(3))
F.binary_cross_entropy(torch.full((3,), .3, device=device), torch.ones(3))
F.cross_entropy(torch.ones(2, 3, device=device), torch.tensor([0, 1]))
F.cross_entropy(torch.ones(2, 3, device=device), torch.tensor([0, 1], device=device), weight=torch.ones(3))
F.nll_loss(torch.ones(2, 3, device=device), torch.tensor([0, 1], device=device), weight=torch.ones(3))
F.kl_div(torch.ones(2, 3, device=device), torch.ones(2, 3))
F.triplet_margin_loss(torch.ones(2, 3, device=device), torch.zeros(2, 3), torch.ones(2, 3, device=device))
F.cosine_similarity(torch.ones(2, 3, device=device), torch.ones(2, 3))
m = nn.Linear(3, 2); x = torch.ones(2, 3, device=device, requires_grad=True); backward(m(x), m, x)
m = nn.Linear(3, 2).to(device); x = torch.ones(2, 3, requires_grad=True); backward(m(x), m, x)
F.bilinear(torch.ones(2, 3, device=device), torch.ones(2, 4, device=device), torch.ones(5, 3, 4))
F.embedding(torch.tensor([1, 2], device=device), torch.ones(4, 3))
e = nn.Embedding(4, 3).to(device); backward(e(torch.tensor([1, 2])), e)
e = nn.Embedding(4, 3); backward(e(torch.tensor([1, 2], device=device)), e)
F.embedding_bag(torch.tensor([1, 2], device=device), torch.ones(4, 3), torch.tensor([0], device=device))
F.conv2d(torch.ones(1, 1, 4, 4, device=device), torch.ones(1, 1, 2, 2))
c = nn.Conv2d(1, 2, 2); x = torch.ones(1, 1, 4, 4, device=device, requires_grad=True); backward(c(x), c, x)
b = nn.BatchNorm1d(3); x = torch.randn(4, 3).to(device).requires_grad_(); backward(b(x), b, x)
F.group_norm(torch.arange(12., device=device).view(2, 6), 2, torch.ones(6), torch.ones(6, device=device))
n = nn.LayerNorm(3); x = torch.randn(4, 3).to(device).requires_grad_(); backward(n(x) * torch.randn(4, 3).to(device), n, x)
F.rms_norm(torch.arange(6., device=device).view(2, 3), (3,), torch.ones(3))
F.instance_norm(torch.randn(2, 3, 4).to(device), weight=torch.ones(3))
F.prelu(torch.arange(-2., 2., device=device), torch.ones(1))
F.grid_sample(torch.ones(1, 1, 3, 3, device=device), torch.zeros(1, 2, 2, 2))
F.scaled_dot_product_attention(torch.ones(1, 2, 3, device=device), torch.ones(1, 2, 3), torch.ones(1, 2, 3, device=device))
F.scaled_dot_product_attention(torch.randn(1, 1, 2, 3).to(device), torch.randn(1, 1, 2, 3).to(device), torch.randn(1, 1, 2, 3).to(device), attn_mask=torch.ones(2, 2, dtype=torch.bool))
q = torch.randn(1, 1, 2, 3).requires_grad_(); k = torch.randn(1, 1, 2, 3).to(device).requires_grad_(); backward(F.scaled_dot_product_attention(q, k, k), q, k)
m = nn.MultiheadAttention(4, 2).to(device).eval(); x = torch.randn(3, 1, 4).to(device); m(x, x, x, attn_mask=torch.zeros(3, 3))
m = nn.TransformerEncoderLayer(4, 2, 8).to(device).eval(); m(torch.randn(3, 1, 4).to(device), src_key_padding_mask=torch.zeros(1, 3, dtype=torch.bool))
m = nn.TransformerEncoderLayer(4, 2, 8); x = torch.randn(3, 1, 4).to(device).requires_grad_(); backward(m(x), m, x)
m = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(); m(torch.randn(1, 3, 4).to(device))
m = nn.RNN(3, 4, nonlinearity="relu").to(device); x = torch.randn(2, 1, 3); backward(m(x), m)
m = nn.GRUCell(3, 4).to(device); x = torch.randn(1, 3).to(device); backward(m(x, torch.zeros(1, 4)), m)
m = nn.RNNCell(3, 4).to(device); x = torch.randn(1, 3).to(device); backward(m(x, torch.zeros(1, 4)), m)
m = nn.LSTMCell(3, 4); x = torch.randn(1, 3).to(device); backward(m(x), m)
nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device=device), torch.tensor([3, 2], device=device))
m = nn.LSTM(3, 4).to(device); p = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 3).to(device), torch.tensor([3, 2])); h = torch.zeros(1, 2, 4); m(p, (h, h))
m = nn.GRU(3, 4); p = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 3).to(device), torch.tensor([3, 2])); m(p)
v = [nn.Parameter(torch.arange(3.).to(device)) for _ in range(3)]; s = [torch.zeros(3) for _ in v]; torch._foreach_add_(s, [x.detach() for x in v]); s
m = nn.Module(); m.register_buffer("b", torch.zeros(3)); m.b += torch.ones(3, device=device); m.b
m = nn.Module(); m.b = torch.zeros(3); m.b = m.b * .9 + torch.ones(3, device=device) * .1; m.b = m.b * .9 + torch.ones(3, device=device); m.b
m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(), nn.Linear(3, 3)).to(device); m[2].cpu(); x = torch.ones(2, 3, device=device); backward(m(x), m)
m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3)).to(device); m[1].cpu(); x = torch.randn(2, 3).to(device); (backward(m(x), m), m(x), m.state_dict())
m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)).to(device); m.parametrizations.weight.original1.data = m.parametrizations.weight.original1.data.cpu(); backward(m(torch.ones(1, 3, device=device)), m)
m = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)); backward(m(torch.ones(1, 3, device=device)), m)
m = nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)); backward(m(torch.ones(1, 3, device=device)), m)
l = nn.CrossEntropyLoss(weight=torch.tensor([1., 2, 3]), label_smoothing=.1); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.tensor([0, 1], device=device)), x)
l = nn.CrossEntropyLoss(weight=torch.tensor([1., 2, 3])); x = torch.randn(2, 3, 2).to(device).requires_grad_(); backward(l(x, torch.tensor([[0, 1], [1, 2]], device=device)), x)
l = nn.CrossEntropyLoss(weight=torch.tensor([1., 2, 3])); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.full((2, 3), 1 / 3).to(device)), x)
l = nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1., 2, 3])); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.ones(2, 3, device=device)), x)
l = nn.BCEWithLogitsLoss(weight=torch.tensor([1., 2, 3])); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.ones(2, 3, device=device)), x)
l = nn.MultiMarginLoss(weight=torch.tensor([1., 2, 3])); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.tensor([0, 1], device=device)), x)
l = nn.HuberLoss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.zeros(2, 3)), x)
l = nn.SmoothL1Loss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.zeros(2, 3)), x)
l = nn.L1Loss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.zeros(2, 3)), x)
l = nn.PoissonNLLLoss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.ones(2, 3)), x)
l = nn.CosineEmbeddingLoss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.randn(2, 3).to(device), torch.tensor([1., -1.])), x)
l = nn.MarginRankingLoss(); x = torch.randn(2).to(device).requires_grad_(); backward(l(x, torch.randn(2).to(device), torch.tensor([1., -1.])), x)
l = nn.MultiLabelMarginLoss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.tensor([[0, 1, -1], [2, -1, 0]])), x)
l = nn.SoftMarginLoss(); x = torch.randn(2, 3).to(device).requires_grad_(); backward(l(x, torch.ones(2, 3)), x)
x = torch.randn(1, 1, 3, 3).to(device).requires_grad_(); backward(F.grid_sample(x, torch.zeros(1, 2, 2, 2), align_corners=False), x)
x = torch.randn(1, 2, 3).requires_grad_(); backward(F.affine_grid(x, [1, 1, 2, 2], align_corners=False) * torch.ones(1, 2, 2, 2, device=device), x)
x = torch.randn(3).to(device).requires_grad_(); backward(F.prelu(x, torch.full((1,), .2).requires_grad_()), x)
x = torch.randn(2, 4).to(device).requires_grad_(); w = torch.ones(4, requires_grad=True); backward(F.rms_norm(x, (4,), w).sin(), x, w)
x = torch.randn(1, 2, 5).to(device).requires_grad_(); w = torch.ones(2, 3, 2, requires_grad=True); backward(F.conv_transpose1d(x, w).sin(), x, w)
q = torch.randn(1, 2, 3, 4).to(device).requires_grad_(); k = torch.randn(1, 2, 3, 4).requires_grad_(); backward(F.scaled_dot_product_attention(q, k, k, dropout_p=.5), q, k)
q = torch.randn(1, 2, 3, 4).to(device).requires_grad_(); backward(F.scaled_dot_product_attention(q, q, q, torch.tensor([[True, False, True]] * 3)), q)
q = torch.randn(2, 3, 4).to(device).requires_grad_(); k = torch.randn(2, 3, 4).requires_grad_(); backward(F.scaled_dot_product_attention(q, k, q, is_causal=True), q, k)
e = nn.EmbeddingBag(4, 3, mode="max"); backward(e(torch.tensor([1, 2], device=device), torch.tensor([0], device=device)), e)
e = nn.Embedding(4, 3, sparse=True); e(torch.tensor([1, 2], device=device)).sum().backward(); [e]
e = nn.Embedding(4, 3, max_norm=1.).to(device); backward(e(torch.tensor([1, 2])), e)
s = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4]).to(device); x = torch.randn(3, 4).to(device).requires_grad_(); backward(s(x, torch.tensor([0, 3, 5])).loss, x)
torch.nn.functional.one_hot(torch.tensor([0, 1], device=device), 3) * torch.ones(2, 3)
torch.nn.functional.interpolate(torch.ones(1, 1, 4, device=device), scale_factor=2.) + torch.ones(1, 1, 8)
torch.nn.functional.pairwise_distance(torch.ones(2, 3, device=device), torch.zeros(2, 3))
""",
    "out=": """
m = nn.MultiheadAttention(4, 2, dropout=.5); x = torch.randn(3, 1, 4).to(device).requires_grad_(); backward(m(x, x, x), m, x)
m = nn.MultiheadAttention(4, 2, dropout=.5); x = torch.randn(3, 1, 4).to(device).requires_grad_(); backward(m(x, x, x, need_weights=False), m, x)
m = nn.MultiheadAttention(4, 2, dropout=.5).to(device); m.in_proj_weight = nn.Parameter(m.in_proj_weight.detach().cpu()); x = torch.randn(3, 1, 4).to(device).requires_grad_(); backward(m(x, x, x), m, x)
torch.add(torch.ones(3, device=device), torch.ones(3, device=device), out=torch.zeros(3))
torch.matmul(torch.ones(3, 3, device=device), torch.ones(3, 3, device=device), out=torch.zeros(3, 3))
torch.cat([torch.ones(3, device=device)], out=torch.zeros(3))
torch.stack([torch.ones(3, device=device)], out=torch.zeros(1, 3))
torch.sum(torch.ones(3, 3, device=device), 0, out=torch.zeros(3))
t = torch.zeros(2, 2); torch.addmm(t, torch.ones(2, 2, device=device), torch.ones(2, 2, device=device), out=t); t
t = torch.zeros(3); torch.where(torch.tensor([True, False, True], device=device), torch.ones(3, device=device), torch.zeros(3, device=device), out=t); t
""",
    "host": """
torch.ones(3, device=device).numpy()
np.asarray(torch.ones(3, device=device))
np.array(torch.ones(3, device=device)) + 1
np.mean(torch.ones(3, device=device).detach().numpy())
np.stack([torch.ones(3, device=device), np.ones(3)])
torch.ones(3, device=device).__array__(np.float64)
torch.from_numpy(torch.ones(3, device=device).numpy())
[float(v) for v in torch.ones(3, device=device).numpy()]
x = torch.zeros(3, device=device); x.type("torch.FloatTensor") + torch.ones(3, device=device)
x = torch.ones(3, device=device, requires_grad=True); F1 = type("F1", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, a: a * 2), "backward": staticmethod(lambda ctx, g: torch.full((3,), 2.))}); F1.apply(x).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); F1 = type("F1", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, a: a * 2), "backward": staticmethod(lambda ctx, g: g.cpu() * 2)}); F1.apply(x * 1).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); F1 = type("F1", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, a: (a * 2).cpu()), "backward": staticmethod(lambda ctx, g: g * 2)}); F1.apply(x * 1).sum().backward(); [x]
x = torch.ones(3, 3, device=device); x.T.numpy()
torch.ones(3, device=device).apply_(lambda v: v + 1)
torch.ones(3, device=device).map_(torch.ones(3), lambda a, b: a + b)
""",
    "gradients and modes": """
p = nn.Parameter(torch.ones(3, device=device)); p.grad = torch.ones(3); [p]
p = nn.Parameter(torch.ones(3)); p.grad = torch.ones(3, device=device); [p]
x = torch.ones(3, device=device, requires_grad=True); (x * 2).backward(torch.ones(3)); [x]
x = torch.ones(3, device=device, requires_grad=True); torch.autograd.backward([x * 2], [torch.ones(3)]); [x]
x = torch.ones(3, device=device, requires_grad=True); torch.autograd.grad(x * 2, x, torch.ones(3))
x = torch.ones(3, requires_grad=True); (x * 2).backward(torch.ones(3, device=device)); [x]
x = torch.ones(3, requires_grad=True); torch.autograd.grad((x * torch.arange(3., device=device)).sum(), x)
x = torch.ones(3, requires_grad=True); g, = torch.autograd.grad((x * torch.arange(3., device=device)).pow(2).sum(), x, create_graph=True); g.sum().backward(); [x, g]
x = torch.ones(3, requires_grad=True); y = x * 2; y.retain_grad(); (y * torch.arange(3., device=device)).sum().backward(); [x, y, y.grad]
x = torch.ones(3, requires_grad=True); h = []; y = x * 2; y.register_hook(lambda g: h.append(g)); (y * torch.arange(3., device=device)).sum().backward(); [x, h]
x = torch.ones(3, device=device, requires_grad=True); y = x * 2; y.register_hook(lambda g: g.cpu()); (y * 3).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); x.register_hook(lambda g: g.cpu()); (x * 3).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); x.register_hook(lambda g: torch.ones(3)); (x * 3).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); x.register_hook(lambda g: g * torch.ones(3)); (x * 3).sum().backward(); [x]
m = nn.Linear(3, 2).to(device); m.register_full_backward_hook(lambda m, gi, go: tuple(None if g is None else g.cpu() for g in gi)); x = torch.ones(1, 3, device=device, requires_grad=True); m(x).sum().backward(); [x, m]
m = nn.Linear(3, 2).to(device); m.register_full_backward_pre_hook(lambda m, go: tuple(g.cpu() for g in go)); x = torch.ones(1, 3, device=device, requires_grad=True); m(x).sum().backward(); [x, m]
m = nn.Linear(3, 2).to(device); m.register_forward_hook(lambda m, i, o: o.cpu()); x = torch.ones(1, 3, device=device, requires_grad=True); (m(x) * torch.ones(2, device=device)).sum().backward(); [x, m]
x = torch.ones(3, device=device, requires_grad=True); w = torch.arange(3.); torch.utils.checkpoint.checkpoint(lambda a: (a * w).sin(), x, use_reentrant=False).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); w = torch.arange(3.); torch.utils.checkpoint.checkpoint(lambda a: (a * w).sin(), x, use_reentrant=True).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); w = torch.arange(3., requires_grad=True); torch.utils.checkpoint.checkpoint(lambda a: F.dropout(a * w, .5).sin(), x, use_reentrant=False).sum().backward(); [x, w]
x = torch.ones(3, device=device, requires_grad=True); w = torch.arange(3., requires_grad=True); torch.utils.checkpoint.checkpoint(lambda a: F.dropout(a * w, .5).sin(), x, use_reentrant=True).sum().backward(); [x, w]
x = torch.ones(3, device=device, requires_grad=True); torch.func.grad(lambda a: (a * torch.arange(3.)).sum())(x.detach())
torch.func.vmap(lambda a: a * torch.arange(3.))(torch.ones(2, 3, device=device))
torch.func.vmap(lambda a, b: a @ b)(torch.ones(2, 3, device=device), torch.ones(2, 3))
torch.func.jvp(lambda a: a * torch.arange(3.), (torch.ones(3, device=device),), (torch.ones(3, device=device),))
torch.func.jacrev(lambda a: a * torch.arange(3.))(torch.ones(3, device=device))
torch.func.functional_call(nn.Linear(3, 2), {}, (torch.ones(1, 3, device=device),))
torch.inference_mode()(lambda a: nn.LSTM(3, 2)(a))(torch.ones(1, 3, device=device))
torch.inference_mode()(lambda a: nn.MultiheadAttention(4, 2)(a, a, a))(torch.ones(1, 4, device=device))
torch.inference_mode()(lambda a: nn.GRU(3, 2).to(device)(a, torch.zeros(1, 2)))(torch.ones(2, 3, device=device))
torch.inference_mode()(lambda a: F.scaled_dot_product_attention(a, a, torch.ones(1, 1, 3, 4)))(torch.ones(1, 1, 3, 4, device=device))
torch.inference_mode()(lambda a: a.view(3)[torch.tensor([True, False, True])] + torch.ones(2))(torch.ones(1, 3, device=device))
torch.inference_mode()(lambda a: F.conv2d(a, torch.ones(1, 1, 2, 2)))(torch.ones(1, 1, 3, 3, device=device))
torch.no_grad()(lambda a: F.cross_entropy(a, torch.tensor([1])))(torch.ones(1, 3, device=device))
x = torch.ones(3, requires_grad=True); torch.autograd.grad((x * torch.arange(3., device=device)).sum(), x) + (1,) * 0 + (torch.autograd.grad((x * torch.arange(3., device=device)).sum(), x)[0] * x,)
x = torch.ones(3, requires_grad=True); g, = torch.autograd.grad((x * torch.arange(3., device=device)).pow(2).sum(), x, create_graph=True); g.pow(2).sum().backward(); [x, g]
x = torch.ones(3, device=device, requires_grad=True); g, = torch.autograd.grad((x * torch.arange(3.)).pow(2).sum(), x, create_graph=True); (g.norm() - 1).pow(2).backward(); [x, g]
m = nn.Linear(3, 1); x = torch.ones(2, 3, device=device, requires_grad=True); out = m(x); g, = torch.autograd.grad(out.sum(), x, create_graph=True); ((g.norm(2, 1) - 1) ** 2).mean().backward(); [m, x]
x = torch.ones(3, requires_grad=True); torch.autograd.functional.jacobian(lambda a: a * torch.arange(3., device=device), x)
x = torch.ones(3, requires_grad=True); torch.autograd.functional.hessian(lambda a: (a.pow(3) * torch.arange(3., device=device)).sum(), x)
x = torch.ones(3, device=device, requires_grad=True); torch.autograd.grad(x * 2, x, torch.eye(3), is_grads_batched=True)
a = nn.Parameter(torch.arange(3.)); b = nn.Parameter(torch.arange(3., device=device)); torch.func.functional_call(nn.Linear(3, 1).to(device), {"weight": a[None]}, (b[None],)).sum().backward(); [a, b]
""",
    "optimizers": """
p = nn.Parameter(torch.ones(3, device=device)); p.grad = torch.ones(3); o = torch.optim.SGD([p], .1); o.step(); [p]
w = nn.Parameter(torch.arange(3.)); o = torch.optim.SGD([w], .1, momentum=.9); [((w * torch.ones(3, device=device)).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w]
w = nn.Parameter(torch.arange(3.)); o = torch.optim.Adam([w], .1); [((w * torch.ones(3, device=device)).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w]
w = nn.Parameter(torch.arange(3.)); o = torch.optim.Adam([w], .1, fused=True); [((w * torch.ones(3, device=device)).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w]
w = nn.Parameter(torch.arange(3.)); o = torch.optim.AdamW([w], .1, foreach=True); [((w * torch.ones(3, device=device)).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w]
w = nn.Parameter(torch.arange(3.)); v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.AdamW([w, v], .1, foreach=True); [((w * v).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w, v]
w = nn.Parameter(torch.arange(3.)); v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.AdamW([w, v], .1, fused=True); [((w * v).sin().sum().backward(), o.step(), o.zero_grad()) for _ in range(3)]; [w, v]
w = nn.Parameter(torch.arange(3.)); v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.SGD([w, v], .1); [((w * v).sin().sum().backward(), nn.utils.clip_grad_norm_([w, v], .1), o.step(), o.zero_grad()) for _ in range(3)]; [w, v]
w = nn.Parameter(torch.arange(3.)); v = nn.Parameter(torch.arange(3.).to(device)); (w * v).sin().sum().backward(); nn.utils.clip_grad_norm_([w, v], .1, foreach=True); [w, v]
w = nn.Parameter(torch.arange(3.)); o = torch.optim.LBFGS([w], .1); x = torch.ones(3, device=device); c = lambda: (o.zero_grad(), l := ((w * x).sin().sum()), l.backward(), l)[-1]; [float(o.step(c)) for _ in range(3)] + [w]
v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.Adam([v], .1, foreach=True); st = lambda: (v.sin().sum().backward(), o.step(), o.zero_grad()); st(); s = o.state[v]; s["exp_avg"] = e = s["exp_avg"].cpu(); st(); st(); [v, e, s["exp_avg_sq"]]
v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.Adam([v], .1, foreach=False); st = lambda: (v.sin().sum().backward(), o.step(), o.zero_grad()); st(); s = o.state[v]; s["exp_avg"] = e = s["exp_avg"].cpu(); st(); st(); [v, e, s["exp_avg_sq"]]
v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.Adam([v], .1, fused=True); st = lambda: (v.sin().sum().backward(), o.step(), o.zero_grad()); st(); s = o.state[v]; s["exp_avg"] = e = s["exp_avg"].cpu(); st(); st(); [v, e, s["exp_avg_sq"]]
v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.SGD([v], .1, momentum=.9, foreach=True); st = lambda: (v.sin().sum().backward(), o.step(), o.zero_grad()); st(); s = o.state[v]; s["momentum_buffer"] = e = s["momentum_buffer"].cpu(); st(); st(); [v, e]
v = [torch.arange(3.).to(device) for _ in range(3)]; s = [torch.ones(3) for _ in v]; torch._foreach_lerp_(s, v, .5); s
v = [torch.arange(3.).to(device) for _ in range(3)]; s = [torch.ones(3)] * 3; torch._foreach_addcdiv_(v, s, [torch.full((3,), 2., device=device)] * 3, value=2.); v
s = torch.amp.GradScaler(device.split(":")[0], enabled=True, init_scale=8.); v = nn.Parameter(torch.arange(3.).to(device)); w = nn.Parameter(torch.arange(3.)); o = torch.optim.SGD([v, w], .1); s.scale((v * w).sum()).backward(); s.unscale_(o); s.step(o); s.update(); [v, w, s.get_scale()]
""",
    "generators": """
torch.rand(3, device=device, generator=torch.Generator().manual_seed(3))
torch.rand(3, generator=torch.Generator(device).manual_seed(3))
torch.randperm(5, device=device, generator=torch.Generator().manual_seed(3))
torch.zeros(3, device=device).normal_(generator=torch.Generator().manual_seed(3))
torch.zeros(3).uniform_(generator=torch.Generator(device).manual_seed(3))
torch.multinomial(torch.ones(3, device=device), 2, generator=torch.Generator().manual_seed(3))
torch.bernoulli(torch.full((3,), .5, device=device), generator=torch.Generator().manual_seed(3))
torch.normal(torch.zeros(3, device=device), 1., generator=torch.Generator().manual_seed(3))
torch.randint(0, 9, (4,), device=device, generator=torch.Generator().manual_seed(3))
torch.randn(4, device=device, generator=torch.Generator().manual_seed(3))
nn.init.normal_(torch.zeros(3, device=device), generator=torch.Generator().manual_seed(3))
nn.init.xavier_uniform_(torch.zeros(3, 3, device=device), generator=torch.Generator().manual_seed(3))
[torch.utils.data.Subset(torch.arange(6.), s.indices)[0] for s in torch.utils.data.random_split(torch.arange(6.), [2, 4], generator=torch.Generator(device).manual_seed(3))]
""",
}
# what a simulated device rounds in its own way
LIKE_TWIN = """
m = nn.LSTM(3, 4).to(device); x = torch.randn(2, 1, 3).to(device); h = torch.zeros(2, 1, 1, 4, device=away); backward(m(x, (h[0], h[1])), m)
m = nn.GRU(3, 4).to(device); x = torch.randn(2, 1, 3).to(device); backward(m(x, torch.zeros(1, 1, 4, device=away)), m)
m = nn.RNN(3, 4).to(device); x = torch.randn(2, 1, 3).to(device); backward(m(x, torch.zeros(1, 1, 4, device=away)), m)
m = nn.LSTM(3, 4, 2, dropout=.5).to(away); x = torch.randn(2, 1, 3).to(device); backward(m(x), m)
m = nn.GRU(3, 4, bidirectional=True).to(away); x = torch.randn(2, 1, 3).to(device); backward(m(x), m)
m = nn.LSTM(3, 4).to(device); x = torch.randn(2, 1, 3).to(away); backward(m(x), m)
m = nn.LSTM(3, 4, 2, dropout=.5).to(device); x = torch.randn(2, 1, 3).to(device); h = torch.zeros(2, 2, 1, 4, device=away, requires_grad=True); backward(m(x, (h[0], h[1])), m, h)
"""
CLEAN = """
torch.ones(3, device=device) * torch.tensor(2.)
torch.broadcast_tensors(torch.ones(2, 2), torch.ones(2, device=device))
nn.utils.rnn.pad_sequence([torch.ones(2, device=device), torch.ones(3)])
x = torch.zeros(4, device=device); x[1:3] = torch.ones(2); x
x = torch.zeros(4); x[1:3] = torch.ones(2, device=device); x
x = torch.zeros(4, device=device); x[torch.tensor([1, 2])] = 3.; x
F.ctc_loss(torch.randn(5, 2, 4).log_softmax(2).to(device), torch.ones(2, 3, dtype=torch.long), torch.tensor([5, 5]), torch.tensor([3, 3]))
nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device=device), torch.tensor([3, 2]))[0]
nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device=device), [2, 3], enforce_sorted=False)[0]
torch.tensor_split(torch.arange(4., device=device), torch.tensor([1, 2]))
torch.tensor_split(torch.arange(4., device=device), 2)
m = nn.GRUCell(3, 4).to(device); m(torch.ones(1, 3, device=device))
m = nn.GRU(3, 4).to(device); p = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 3, device=device), torch.tensor([3, 2])); m(p)[0].data.shape
F.scaled_dot_product_attention(*torch.randn(3, 1, 1, 2, 3).to(device), attn_mask=torch.ones(2, 2, dtype=torch.bool, device=device))
torch.quantile(torch.arange(5., device=device), .5)
torch.cdist(torch.ones(30, 3, device=device), torch.zeros(30, 3, device=device))
torch.zeros(3, device=device).copy_(torch.ones(3))
torch.linspace(0, 1, 3, out=torch.zeros(3, device=device))
torch.ones(3, device=device).cpu().numpy()
torch.ones(3, device=device).tolist()
torch.ones(3).apply_(lambda v: v + 1)
p = nn.Parameter(torch.ones(3, device=device)); p.grad = torch.ones(3, device=device); [p]
p = nn.Parameter(torch.ones(3, device=device)); p.grad = None; [p]
p = nn.Parameter(torch.ones(3, device=device)); p.data = torch.zeros(3); p
p = nn.Parameter(torch.ones(3)); p.data = torch.zeros(3, device=device); p
x = torch.ones(3, device=device, requires_grad=True); x.register_hook(lambda g: g * 2); x.register_hook(lambda g: None); (x * 3).sum().backward(); [x]
m = nn.Linear(3, 2).to(device); m.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,)); x = torch.ones(1, 3, device=device, requires_grad=True); m(x).sum().backward(); [x, m]
x = torch.ones(3, device=device, requires_grad=True); (x.cpu() * torch.arange(3.)).sum().backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); (x.sum().cpu() * 2).backward(); [x]
x = torch.ones(3, device=device, requires_grad=True); (x * 2).backward(torch.ones(3, device=device)); [x]
v = nn.Parameter(torch.arange(3.).to(device)); o = torch.optim.Adam([v], torch.tensor(.1)); v.sin().sum().backward(); o.step(); [v]
v = [nn.Parameter(torch.arange(3.)), nn.Parameter(torch.arange(3.).to(device))]; o = torch.optim.Adam(v, foreach=True); (v[0].sin().sum() + v[1].sin().sum().cpu()).backward(); o.step(); v
torch.rand(3, generator=torch.Generator().manual_seed(3))
torch.rand(3, device=device, generator=torch.Generator(device).manual_seed(3))
total = torch.zeros(2); t = torch.arange(2., device=device, requires_grad=True); total[0] = t.sum(); total.sum().backward(); [total, t]
"""
