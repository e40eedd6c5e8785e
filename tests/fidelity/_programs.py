"""Small programs with tensors, by kind.

A program is one line of Python: its last expression is its result, `device` is where it runs.
"""

# ruff: noqa: E501  a program is one line

from __future__ import annotations

TENSORS = {
    "indexing": """
torch.arange(12., device=device).view(3, 4)[:, (1, 3)]
torch.arange(12., device=device).view(3, 4)[(0, 2),]
torch.arange(12., device=device).view(3, 4)[:, range(1, 3)]
x = torch.arange(12., device=device).view(3, 4); x[:, (1, 3)] = 7; x
x = torch.arange(24., device=device).view(4, 6); x[[[0, 1], [1, 2]]]
torch.ones(4, device=device)[[slice(0, 2)]]
torch.arange(24., device=device).view(2, 3, 4)[..., 1]
torch.arange(24., device=device).view(2, 3, 4)[:, None, 1:, ::2]
torch.arange(10, device=device)[torch.tensor([1, 2, -1])]
torch.arange(10, device=device)[torch.tensor([1, 2, -1], device=device)]
torch.arange(10, device=device)[torch.arange(10, device=device) > 4]
torch.arange(10, device=device)[np.array([1, 3])]
torch.arange(10, device=device)[np.int64(3)]
x = torch.zeros(3, 3, device=device); x[torch.eye(3, dtype=torch.bool, device=device)] = 5.; x
x = torch.zeros(3, 3, device=device); x[0, 1] = 2; x[1:] += 1; x[..., -1] *= 3; x
x = torch.zeros(5, device=device); x[[0, 0, 1]] += 1; x
x = torch.zeros(5, device=device); x.index_put_((torch.tensor([0, 0, 1], device=device),), torch.ones(3, device=device), accumulate=True)
torch.arange(12., device=device).view(3, 4)[True]
torch.arange(12., device=device).view(3, 4)[torch.tensor(True, device=device)]
torch.arange(12., device=device).view(3, 4)[torch.tensor(1, device=device)]
torch.arange(12., device=device).view(3, 4)[[]]
torch.arange(12., device=device).view(3, 4)[torch.tensor([], dtype=torch.long, device=device)]
torch.arange(12., device=device).view(3, 4)[[True, False, True]]
torch.arange(12., device=device).view(3, 4)[None, ..., None].shape
list(torch.arange(3., device=device))
torch.arange(12., device=device).view(3, 4).gather(1, torch.tensor([[0], [1], [3]], device=device))
torch.zeros(3, 4, device=device).scatter_(1, torch.tensor([[0], [1], [3]], device=device), 1.)
torch.zeros(3, 4, device=device).scatter_add(0, torch.zeros(2, 4, dtype=torch.long, device=device), torch.ones(2, 4, device=device))
torch.zeros(3, device=device).scatter_reduce(0, torch.tensor([0, 1, 1], device=device), torch.tensor([1., 2., 3.], device=device), "amax")
torch.zeros(3, 2, device=device).index_add_(0, torch.tensor([0, 2], device=device), torch.ones(2, 2, device=device), alpha=2)
torch.zeros(3, 2, device=device).index_copy(0, torch.tensor([0, 2], device=device), torch.ones(2, 2, device=device))
torch.arange(12., device=device).view(3, 4).index_select(1, torch.tensor([3, 0], device=device))
torch.arange(12., device=device).take(torch.tensor([[0, 5]], device=device))
torch.zeros(4, device=device).put_(torch.tensor([1, 2], device=device), torch.tensor([3., 4.], device=device))
torch.arange(12., device=device).view(3, 4).take_along_dim(torch.tensor([[0, 1]], device=device), 1)
torch.arange(6., device=device).masked_select(torch.arange(6, device=device) % 2 == 0)
torch.zeros(4, device=device).masked_scatter(torch.tensor([True, False, True, True], device=device), torch.arange(3., device=device))
torch.where(torch.arange(4, device=device) > 1, 1.0, 0)
torch.where(torch.arange(4, device=device) > 1)
torch.nonzero(torch.eye(3, device=device), as_tuple=True)
torch.argwhere(torch.eye(3, device=device))
torch.arange(24., device=device).view(2, 3, 4).unbind(1)
torch.arange(24., device=device).view(2, 3, 4).diagonal(0, 1, 2)
x = torch.zeros(4, 4, device=device); x.diagonal().fill_(3); x.fill_diagonal_(2); x
x = torch.zeros(4, 4, device=device); x[1].copy_(torch.arange(4)); x[:, 2] = torch.tensor(9.); x
x = torch.zeros(4, device=device); x[1:3] = torch.tensor([5., 6.]); x
x = torch.zeros(4, device=device); x[torch.tensor([0, 1])] = torch.tensor(3.); x
x = torch.arange(6., device=device); x[x > 2] = x[x > 2] * 2; x
x = torch.arange(6., device=device, requires_grad=True); y = x * 2; y[::2] = 0; y.sum().backward(); [x, y]
x = torch.arange(6., device=device, requires_grad=True); x[[0, 0, 2]].sum().backward(); x
x = torch.arange(6., device=device, requires_grad=True); x[(1, 2),].prod().backward(); x
x = torch.arange(12., device=device).view(3, 4); x[1, [0, 2]]
x = torch.arange(12., device=device).view(3, 4); x[[0, 1], [2, 3]]
x = torch.arange(12., device=device).view(3, 4); x[[0, 1], :, None]
x = torch.arange(12., device=device).view(3, 4); x[torch.tensor([0, 1]), torch.tensor([[1], [2]], device=device)]
x = torch.arange(12., device=device).view(3, 4); x[np.array([True, False, True])]
x = torch.arange(12., device=device).view(3, 4); x[np.array([[0], [1]]), np.array([1, 2])] = -1.; x
x = torch.arange(3, device=device); [int(x[1]), [10, 20, 30][x[2]], range(x[2])]
""",
    "factories": """
[torch.tensor([1, 2], device=device), torch.tensor(1., device=device), torch.tensor([True], device=device), torch.tensor([], device=device)]
torch.tensor([[1, 2.5], [3, 4]], dtype=torch.half, device=device, requires_grad=True)
torch.tensor(np.arange(3), device=device)
torch.tensor([np.float32(1), np.float32(2)], device=device)
torch.tensor([torch.tensor(1.), torch.tensor(2.)], device=device)
torch.tensor([torch.tensor(1., device=device), 3], device=device)
torch.tensor(torch.arange(3., device=device))
torch.as_tensor(np.arange(3.), device=device)
torch.as_tensor([1, 2], dtype=torch.float64, device=device)
torch.asarray([1, 2], dtype=torch.float64, device=device)
torch.asarray(torch.arange(3., device=device), copy=True)
torch.from_numpy(np.ones(3)).to(device)
[f(2, 3, device=device) for f in (torch.zeros, torch.ones, torch.rand, torch.randn)]
[torch.full((2,), v, device=device) for v in (1, 1., True, 1j)]
[torch.arange(5, device=device), torch.arange(0, 1, .25, device=device), torch.arange(1, 7, 2, dtype=torch.half, device=device)]
[torch.linspace(0, 1, 5, device=device), torch.logspace(0, 2, 3, device=device), torch.range(1, 3, device=device)]
torch.linspace(torch.tensor(0.), torch.tensor(1.), 4, device=device)
[torch.eye(2, 3, device=device), torch.tril_indices(3, 3, device=device), torch.triu_indices(3, 3, device=device)]
[torch.hann_window(5, device=device), torch.hamming_window(4, device=device), torch.blackman_window(4, device=device), torch.kaiser_window(4, device=device), torch.bartlett_window(4, device=device)]
x = torch.randn(2, 3, device=device); [torch.zeros_like(x), torch.ones_like(x, dtype=torch.int), torch.rand_like(x), torch.randn_like(x), torch.full_like(x, 7), torch.randint_like(x, 5)]
x = torch.randn(2, 3, device=device); [x.new_zeros(2), x.new_ones(2, dtype=torch.long), x.new_full((2,), 3), x.new_tensor([1, 2]), x.new_empty(0)]
x = torch.randn(2, 3, 4, 5, device=device).to(memory_format=torch.channels_last); [torch.zeros_like(x), x.clone(), x + 1, x.contiguous(), torch.zeros_like(x, memory_format=torch.contiguous_format)]
[torch.randint(0, 9, (5,), device=device), torch.randperm(6, device=device), torch.bernoulli(torch.full((5,), .5, device=device)), torch.normal(0., 1., (3,), device=device), torch.normal(torch.zeros(3, device=device), 2.)]
[torch.poisson(torch.full((4,), 3., device=device)), torch.multinomial(torch.ones(5, device=device), 3), torch.binomial(torch.full((3,), 5., device=device), torch.full((3,), .5, device=device))]
x = torch.empty(5, device=device); [x.uniform_(), x.normal_().clone(), x.exponential_().clone(), x.geometric_(.3).clone(), x.cauchy_().clone(), x.log_normal_().clone(), x.random_(10).clone(), x.bernoulli_(.5).clone()]
torch.complex(torch.ones(2, device=device), torch.zeros(2, device=device))
torch.polar(torch.ones(2, device=device), torch.arange(2., device=device))
torch.meshgrid(torch.arange(2, device=device), torch.arange(3, device=device), indexing="ij")
torch.cartesian_prod(torch.arange(2, device=device), torch.arange(3, device=device))
torch.combinations(torch.arange(4, device=device))
torch.vander(torch.arange(3., device=device))
torch.block_diag(torch.ones(2, 2, device=device), torch.ones(1, 3, device=device))
torch.empty_strided((2, 3), (1, 2), device=device).fill_(1)
torch.empty(2, 3, 4, 5, device=device, memory_format=torch.channels_last).zero_()
torch.empty_permuted((2, 3, 4), (0, 2, 1), device=device).zero_()
torch.scalar_tensor(3., device=device)
torch.frombuffer(bytearray(b"abcd"), dtype=torch.uint8).to(device)
torch.zeros((), device=device)
torch.ones(2, device=device).new([1., 2.])
torch.set_default_dtype(torch.float64); x = torch.ones(2, device=device); torch.set_default_dtype(torch.float32); x
with_ = torch.device(device); with_.__enter__(); x = torch.ones(2); with_.__exit__(None, None, None); x
""",
    "copies": """
torch.arange(3., device=device).cpu()
torch.arange(3.).to(device).to("cpu").to(device)
torch.arange(3., device=device).to(torch.float64)
torch.arange(3., device=device).to(torch.ones(1, dtype=torch.half, device=device))
torch.arange(3.).to(torch.ones(1, dtype=torch.half, device=device))
torch.arange(6.).view(2, 3).t().to(device)
torch.arange(6.).view(2, 3).t().to(device).contiguous()
torch.arange(6.).view(2, 3)[:, ::2].to(device)
torch.ones(1).expand(3).to(device)
torch.ones(2, 1).expand(2, 3).to(device)
torch.arange(6.)[2:4].to(device)
x = torch.arange(3., device=device); [x.to(device) is x, x.to(device, copy=True) is x, x.to(torch.float32) is x, x.cpu().is_contiguous()]
x = torch.arange(3., requires_grad=True); y = x.to(device); y.sum().backward(); x
x = torch.arange(3., device=device, requires_grad=True); y = x.cpu() * 2; y.sum().backward(); x
x = torch.arange(3., device=device, requires_grad=True); y = x.double().float(); y.sum().backward(); x
x = torch.randn(2, 3, 4, 4); [x.to(device, memory_format=torch.channels_last), x.to(device).to(memory_format=torch.channels_last)]
x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).to(device); [x, x.cpu(), x.to("cpu")]
x = torch.arange(4., device=device); y = x.clone(); y += 1; [x, y]
x = torch.arange(4., device=device); y = x.detach(); y += 1; [x, y]
x = torch.zeros(3, device=device); x.copy_(torch.arange(3)); x
x = torch.zeros(3); x.copy_(torch.arange(3, device=device)); x
x = torch.zeros(2, 3, device=device); x.copy_(torch.tensor([1., 2., 3.])); x
[torch.arange(3, device=device).float(), torch.arange(3, device=device).half(), torch.arange(3, device=device).bool(), torch.arange(3, device=device).bfloat16(), torch.arange(3, device=device).char()]
x = torch.arange(3., device=device); [x.item() if x.numel() == 1 else 0, x.tolist(), x[1].item(), float(x[2]), int(x[2]), bool(x[0]), x.sum().item()]
copy.copy(torch.arange(3., device=device))
copy.deepcopy(torch.arange(3., device=device, requires_grad=True))
x = torch.arange(3., device=device); copy.deepcopy([x, x, {"a": x}])[0]
x = torch.arange(6., device=device); a = copy.deepcopy([x, x[2:4]]); a[0].add_(1); a
x = torch.arange(3., device=device, requires_grad=True); x.sum().backward(); copy.deepcopy(x)
x = torch.arange(3., device=device); y = torch.empty(0, device=device); y.resize_(3).copy_(x); y
torch.arange(3., device=device).type(torch.float64)
torch.arange(3., device=device).type_as(torch.ones(1, dtype=torch.int, device=device))
torch.arange(3.).type_as(torch.ones(1, dtype=torch.int, device=device))
np.asarray(torch.arange(3., device=device).cpu())
x = torch.arange(3., device=device); [type(x).__name__, type(x.data).__name__, isinstance(x, torch.Tensor), isinstance(nn.Parameter(x), nn.Parameter)]
type(nn.Parameter(torch.ones(1, device=device))) is nn.Parameter
type(torch.ones(1, device=device)) is torch.Tensor
""",
    "in place": """
x = torch.arange(4., device=device); x.add_(1).mul_(2).sub_(.5).div_(3).pow_(2); x
x = torch.arange(4., device=device); x.clamp_(1, 2).neg_().abs_().sqrt_(); x
x = torch.arange(4., device=device); x += torch.tensor(1.); x -= 2; x *= torch.ones(4, device=device); x /= 3; x //= 1; x **= 2; x %= 3; x
x = torch.arange(4, device=device); x &= 3; x |= 1; x ^= 2; x <<= 1; x >>= 1; x
x = torch.arange(6., device=device).view(2, 3); x.t_(); x
x = torch.arange(6., device=device).view(2, 3); x.transpose_(0, 1).unsqueeze_(0).squeeze_(); x
x = torch.arange(6., device=device); x.resize_(2, 2); x
x = torch.arange(6., device=device); x.resize_as_(torch.empty(3, 1, device=device)); x
x = torch.arange(6., device=device); y = x[2:4]; y.zero_(); x
x = torch.arange(6., device=device); y = x.view(2, 3); x.mul_(2); [x, y, x._version, y._version]
x = torch.arange(6., device=device); x.as_strided_((2, 2), (1, 2)); x
x = torch.arange(6., device=device); x.set_(torch.ones(2, device=device)); x
x = torch.arange(6., device=device); x.data = torch.ones(2, device=device); x
x = torch.arange(6., device=device); x.data.zero_(); [x, x._version]
x = torch.arange(3., device=device, requires_grad=True); y = x * 2; y.detach_(); [y, y.requires_grad]
x = torch.arange(3., device=device); x.requires_grad_(); [x, x.requires_grad_(False)]
x = torch.arange(3., device=device, requires_grad=True); y = x.clone(); y.mul_(2).add_(x); y.sum().backward(); [x, y]
x = torch.ones(3, device=device); x.fill_(torch.tensor(2.)); x
x = torch.arange(3., device=device); x.swapaxes_(0, 0); x.squeeze_(0); x
x = torch.randn(4, device=device); x.sort(descending=True)
x = torch.randn(4, 4, device=device); x.tril_().triu_(); x
x = torch.arange(3., device=device); x.lerp_(torch.ones(3, device=device), .5).addcmul_(x, x).addcdiv_(x, x + 1); x
torch.add(torch.ones(3, device=device), 1, out=torch.empty(3, device=device))
o = torch.empty(0, device=device); r = torch.add(torch.ones(3, device=device), 1, out=o); [o, r is o]
o = torch.empty(3, 2, device=device); torch.matmul(torch.ones(3, 4, device=device), torch.ones(4, 2, device=device), out=o); o
o = [torch.empty(0, device=device), torch.empty(0, dtype=torch.long, device=device)]; torch.max(torch.arange(6., device=device).view(2, 3), 1, out=tuple(o)); o
o = torch.empty(0, dtype=torch.long, device=device); torch.arange(5, out=o); o
o = torch.empty(2, 2, device=device); torch.zeros(3, 3, out=o); o
o = torch.empty(4, device=device)[::2]; torch.sin(torch.ones(2, device=device), out=o); o
o = torch.empty(4, device=device); torch.cat([torch.ones(2, device=device), torch.zeros(2, device=device)], out=o); o
o = torch.empty(0, device=device); torch.stack([torch.ones(2, device=device), torch.zeros(2, device=device)], out=o); o
o = torch.empty(3, dtype=torch.float64, device=device); torch.add(torch.ones(3, device=device), 1, out=o); o
""",
    "out and memory": """
o = torch.empty(2, device=device); torch.mean(torch.ones(2, 3, device=device), 1, out=o); o
o = torch.empty(0, device=device); torch.linalg.inv(torch.eye(2, device=device), out=o); o
o = torch.empty(0, device=device), torch.empty(0, dtype=torch.long, device=device); torch.sort(torch.randn(4, device=device), out=o); o
o = torch.empty(0, device=device), torch.empty(0, dtype=torch.long, device=device); torch.topk(torch.randn(4, device=device), 2, out=o); o
o = torch.empty(2, 3, device=device).t(); torch.add(torch.ones(3, 2, device=device), 1, out=o); o
o = torch.zeros(4, device=device); torch.mul(torch.ones(2, device=device), 3, out=o[1:3]); o
o = torch.zeros(2, dtype=torch.bool, device=device); torch.gt(torch.arange(2., device=device), 0, out=o); o
o = torch.empty(3, device=device); torch.randn(3, out=o); o
o = torch.empty(0, device=device); torch.rand(2, 2, out=o); o
o = torch.empty(0, dtype=torch.long, device=device); torch.randint(0, 5, (3,), out=o); o
o = torch.empty(0, dtype=torch.long, device=device); torch.randperm(4, out=o); o
o = torch.empty(0, device=device); torch.linspace(0, 1, 3, out=o); o
o = torch.empty(0, device=device); torch.full((2,), 3., out=o); o
o = torch.empty(0, device=device); torch.cumsum(torch.arange(3., device=device), 0, out=o); o
o = torch.empty(0, device=device); torch.index_select(torch.arange(6., device=device).view(2, 3), 1, torch.tensor([0, 2], device=device), out=o); o
o = torch.empty(0, device=device); torch.gather(torch.arange(6., device=device).view(2, 3), 1, torch.tensor([[0], [2]], device=device), out=o); o
o = torch.empty(0, device=device); torch.masked_select(torch.arange(3., device=device), torch.tensor([True, False, True], device=device), out=o); o
o = torch.empty(0, dtype=torch.long, device=device); torch.nonzero(torch.eye(2, device=device), out=o); o
o = torch.empty(0, device=device); torch.clamp(torch.arange(3., device=device), 1, out=o); o
o = torch.empty(0, device=device); torch.where(torch.tensor([True, False], device=device), torch.ones(2, device=device), torch.zeros(2, device=device), out=o); o
o = torch.empty(0, device=device); torch.bmm(torch.ones(1, 2, 2, device=device), torch.ones(1, 2, 2, device=device), out=o); o
o = torch.empty(2, 2, device=device, dtype=torch.cfloat); torch.fft.fft(torch.ones(2, 2, device=device), out=o); o
x = torch.ones(3, device=device); torch.add(x, x, out=x); x
x = torch.arange(6., device=device); y = x[:4]; x.resize_(8).zero_(); [x, y]
x = torch.arange(6., device=device).view(2, 3); x.resize_(3, 4); [x.shape, x.flatten()[:6], x.stride()]
x = torch.arange(6., device=device); x.resize_(0); [x, x.numel()]
x = torch.arange(6., device=device).view(2, 3); y = x.t(); y.resize_as_(torch.empty(2, 2)); [x, y.shape, y.stride()]
x = torch.arange(4., device=device); x.set_(); x
x = torch.arange(4., device=device); x.unsqueeze_(0); y = x + 1; [x, y]
x = torch.ones(2, 3, 4, 4, device=device); x = x.contiguous(memory_format=torch.channels_last); y = x.permute(0, 2, 3, 1); [y.is_contiguous(), x * 2, x.sum(1), F.relu(x), x[:, 1:], torch.cat([x, x], 1), x.to(torch.half), x.mean((2, 3), keepdim=True)]
m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)).to(device); x = torch.randn(2, 3, 4, 4, device=device, requires_grad=True); backward(m(x), x, m)
m = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).to(device, memory_format=torch.channels_last); x = torch.randn(2, 3, 4, 4, device=device).to(memory_format=torch.channels_last); backward(m(x), m)
m = nn.Conv2d(3, 4, 1).to(device).to(memory_format=torch.channels_last); [m.weight.stride(), m.weight.is_contiguous(memory_format=torch.channels_last)]
m = nn.Linear(2, 2).to(device).share_memory(); m
x = torch.ones(2, device=device); x.data = torch.zeros(3, device=device); [x, x.shape]
p = nn.Parameter(torch.ones(2, device=device)); p.data = torch.zeros(3, 2, device=device).t(); [p, p.stride()]
p = nn.Parameter(torch.ones(2, device=device)); q = p.data; q.add_(1); p.data[0] = 7; [p, q]
p = nn.Parameter(torch.ones(2, device=device)); y = (p * p).sum(); p.data.mul_(3); y.backward(); p
p = nn.Parameter(torch.ones(2, device=device)); p.detach().add_(1); p.detach_(); [p, p.requires_grad]
x = torch.ones(2, device=device, requires_grad=True); y = x * 2; z = y.detach_(); [z is y, y, y.grad_fn is None]
x = torch.ones(2, device=device, requires_grad=True); x.grad = torch.ones(2, device=device); x.grad.data.add_(1); x.grad.detach_(); x
x = torch.ones(2, device=device, requires_grad=True); y = x.clone(); y[0] = torch.tensor(5.); y.sum().backward(); [x, y]
x = torch.zeros(3, device=device); x[0] = torch.tensor(1.5); x[1:] = torch.tensor([2]); x
x = torch.zeros(2, 3, device=device); x[:] = torch.arange(3.); x
x = torch.zeros(2, 3); x[:] = torch.arange(3., device=device); x
x = torch.zeros(2, device=device); x[0] = torch.ones(1, device=device, requires_grad=True)[0]; [x, x.requires_grad]
x = torch.arange(4.); x[torch.tensor([0, 1])] = torch.tensor(9., device=device); x
torch.tensor(2.) * torch.ones(2, device=device) + torch.tensor(1, dtype=torch.int)
torch.stack([torch.tensor(1., device=device), torch.ones(2, device=device).sum()])
sum([torch.tensor(1., device=device), torch.tensor(2.)], torch.tensor(0.))
torch.sum(torch.stack([l for l in [torch.ones(2, device=device).mean()] * 3]))
torch.optim.lr_scheduler.LambdaLR(torch.optim.SGD(nn.Linear(1, 1).to(device).parameters(), lr=1.), lambda e: .5 ** e).get_last_lr()
torch.lerp(torch.zeros(2, device=device), torch.ones(2, device=device), torch.tensor(.3))
torch.nn.functional.mse_loss(torch.ones(2, device=device), torch.zeros(2, device=device), reduction="none")
F.huber_loss(torch.ones(2, device=device), torch.zeros(2, device=device), weight=torch.ones(2, device=device))
[F.mse_loss(torch.ones(2, device=device), torch.zeros(2, device=device), weight=torch.arange(2., device=device)), F.l1_loss(torch.ones(2, device=device), torch.zeros(2, device=device), weight=torch.arange(2., device=device))]
torch.where(torch.tensor([True, False], device=device), torch.tensor(1.), torch.tensor(2., device=device))
torch.cat([torch.ones(0, device=device), torch.ones(2, 2, device=device)])
torch.einsum("i,j->ij", torch.arange(2., device=device), torch.arange(3., device=device))
torch.nan_to_num(torch.tensor([float("nan"), -float("inf")], device=device))
torch.nn.functional.interpolate(torch.ones(1, 1, 3, device=device), size=5, mode="linear")
torch.masked.masked_tensor(torch.arange(3., device=device), torch.tensor([True, False, True], device=device)).sum().get_data()
torch.masked.mean(torch.arange(3., device=device), 0, mask=torch.tensor([True, False, True], device=device))
[torch.special.expit(torch.ones(2, device=device)), torch.special.log_softmax(torch.ones(2, device=device), 0), torch.special.xlogy(torch.ones(2, device=device), 2), torch.special.gammaln(torch.ones(2, device=device)), torch.special.multigammaln(torch.full((2,), 3., device=device), 2), torch.special.bessel_j0(torch.ones(2, device=device))]
[torch.cosine_similarity(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device)), torch.dist(torch.ones(2, device=device), torch.zeros(2, device=device)), torch.renorm(torch.ones(2, 2, device=device), 2, 0, 1.), torch.cross(torch.ones(3, device=device), torch.arange(3., device=device), 0), torch.tensordot(torch.ones(2, 2, device=device), torch.ones(2, 2, device=device), 2)]
[torch.bitwise_not(torch.tensor([1], device=device)), torch.bitwise_left_shift(torch.tensor([1], device=device), 2), torch.hypot(torch.ones(1, device=device), torch.ones(1, device=device)), torch.atan2(torch.ones(1, device=device), torch.ones(1, device=device)), torch.heaviside(torch.zeros(1, device=device), torch.ones(1, device=device)), torch.nextafter(torch.zeros(1, device=device), torch.ones(1, device=device)), torch.ldexp(torch.ones(1, device=device), torch.tensor([2], device=device)), torch.frexp(torch.full((1,), 5., device=device))]
x = torch.randn(3, 4, device=device); [torch.fliplr(x), torch.rot90(x), x.T, x.mT, torch.swapdims(x, 0, 1), torch.scatter(x, 0, torch.zeros(1, 4, dtype=torch.long, device=device), 2.), torch.select_scatter(x, torch.zeros(4, device=device), 0, 1), torch.slice_scatter(x, torch.zeros(1, 4, device=device), start=1, end=2), torch.diagonal_scatter(x, torch.zeros(3, device=device)), torch.as_strided_copy(x, (2, 2), (1, 2))]
x = torch.arange(4., device=device, requires_grad=True); y = x.view(2, 2); y2 = torch.utils.checkpoint.checkpoint(lambda a, b: a * b["k"], y, {"k": y}, use_reentrant=False); y2.sum().backward(); x
m = nn.Linear(2, 2).to(device); m.weight.grad = torch.ones(2, 2, device=device); o = torch.optim.SGD(m.parameters(), lr=.1); o.step(); o.zero_grad(); [m, m.weight.grad is None]
m = nn.Linear(2, 2).to(device); o = torch.optim.AdamW(m.parameters()); m(torch.ones(1, 2, device=device)).sum().backward(); o.step(); o.add_param_group({"params": [nn.Parameter(torch.ones(1, device=device))], "lr": 1.}); o
m = nn.Linear(2, 2).to(device); o = torch.optim.Adam(m.parameters()); m(torch.ones(1, 2, device=device)).sum().backward(); o.step(); s = copy.deepcopy(o.state_dict()); m.cpu(); o.load_state_dict(s); o
m = nn.Linear(2, 2).to(device); o = torch.optim.SGD(m.parameters(), lr=.1, momentum=.9); m(torch.ones(1, 2, device=device)).sum().backward(); o.step(); pickled(o)
m = nn.Linear(2, 2).to(device); o = torch.optim.SGD(m.parameters(), lr=.1, momentum=.9); m(torch.ones(1, 2, device=device)).sum().backward(); o.step(); copy.deepcopy(o)
m = nn.Linear(3, 3).to(device).half(); m(torch.ones(1, 3, dtype=torch.half, device=device)).sum().backward(); [m, nn.utils.clip_grad_norm_(m.parameters(), 1.)]
m = nn.Linear(3, 1).to(device); m(torch.ones(1, 3, device=device)).sum().backward(); nn.utils.clip_grad_norm_(m.parameters(), float("inf"))
[nn.utils.clip_grad_norm_([], 1.), nn.utils.clip_grad_norm_(nn.Parameter(torch.ones(1, device=device)), 1.)]
m = nn.Embedding(4, 2).to(device); F.embedding(torch.tensor([[0, 3]], device=device), m.weight, padding_idx=0, max_norm=.5)
m = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).to(device); m.eval(); [m(torch.ones(1, 2, device=device)), m.train(), m(torch.ones(1, 2, device=device))]
[n for n, p in nn.TransformerEncoderLayer(4, 2, 8).to(device).named_parameters()]
m = nn.Linear(2, 2).to(device); [torch.is_tensor(m.weight), isinstance(m.weight, nn.Parameter), isinstance(m.weight, torch.Tensor), isinstance(m.weight.data, nn.Parameter), m.weight.is_leaf, isinstance(m.weight + 1, nn.Parameter), torch.is_floating_point(m.weight), torch.is_complex(m.weight), torch.is_storage(m.weight), torch.numel(m.weight)]
[type(x).__name__ for x in (torch.ones(1, device=device), torch.ones(1, device=device) + 1, torch.ones(1, device=device).cpu(), torch.ones(2, device=device).size(), torch.max(torch.ones(2, 2, device=device), 1), torch.ones(2, device=device).tolist(), torch.ones(1, device=device).item())]
(lambda *, a, b=2: a)(a=torch.ones(1, device=device))
{torch.ones(1, device=device): 1, "k": torch.zeros(1, device=device)}["k"]
x = torch.ones(1, device=device); [x in [x], x is x, x == x, [x].index(x), {x: 2}[x]]
torch.utils.data.default_collate([{"a": torch.ones(2, device=device), "b": 1}, {"a": torch.zeros(2, device=device), "b": 2}])
torch.utils._pytree.tree_map(lambda t: t + 1, {"a": [torch.ones(1, device=device)], "b": (torch.zeros(1, device=device),)})
torch.testing.assert_close(torch.ones(2, device=device), torch.ones(2, device=device))
torch.nn.modules.utils.consume_prefix_in_state_dict_if_present({"a": torch.ones(1, device=device)}, "x.")
x = torch.arange(4., device=device); torch.empty(0, device=device).set_(x.untyped_storage(), 1, (2,), (1,))
""",
    "strings": """
[str(torch.arange(3., device=device)), repr(torch.tensor(1, device=device)), str(torch.zeros(0, device=device)), f"{torch.tensor(1.5, device=device):.3f}", f"{torch.tensor(3, device=device)}", "%d" % torch.tensor(3, device=device), "{}".format(torch.ones(2, device=device))]
str(torch.randn(3, 3, device=device))
str(torch.arange(3., device=device, requires_grad=True))
str(torch.arange(3., device=device, requires_grad=True) * 2)
str(torch.arange(2000., device=device).view(40, 50))
str(torch.ones(2, dtype=torch.float64, device=device))
str(torch.ones(2, dtype=torch.half, device=device, requires_grad=True))
str(nn.Parameter(torch.ones(2, device=device)))
repr(nn.Parameter(torch.ones(2, device=device)))
str(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to(device))
str(torch.sparse_coo_tensor(torch.tensor([[0], [1]]), torch.tensor([1.]), (2, 2)).to(device))
str(torch.tensor([True, False], device=device))
str(torch.tensor([1j], device=device))
str(torch.tensor([float("nan"), float("inf"), -0., 1e-9, 1e9], device=device))
str({"a": torch.ones(1, device=device), "b": [torch.zeros(1, device=device)]})
str(torch.max(torch.arange(4., device=device).view(2, 2), 1))
str(torch.empty(2, 0, device=device))
str(torch.arange(30, device=device))
str(torch.ones(2, device=device).unsqueeze(0).detach())
[torch.ones(2, device=device).type().replace("cuda.", ""), torch.ones(2, device=device).dtype, str(torch.ones(2, device=device).size()), torch.ones(1, device=device).layout]
[format(torch.tensor(2, device=device), "04d"), round(torch.tensor(2.567, device=device).item(), 2), torch.tensor(2.5, device=device).__format__("")]
[str(torch.ones(2, device=device).to(torch.int8)), hash(torch.ones(1, device=device)) != 0, len(torch.ones(2, device=device)), torch.ones(2, device=device).nbytes, torch.ones(2, device=device).itemsize]
""",
    "numpy": """
torch.arange(4., device=device, requires_grad=True).numpy(force=True)
torch.randn(2, dtype=torch.cfloat, device=device).conj().numpy(force=True)
torch.ones(2, device=device).cpu().numpy()
np.array(torch.ones(2, device=device).cpu())
np.array([t.item() for t in torch.arange(3., device=device)])
np.stack([t.cpu().numpy() for t in torch.arange(4., device=device).view(2, 2)])
np.float32(2.) * torch.ones(2, device=device)
torch.ones(2, device=device) * np.float32(2.)
torch.ones(2, device=device) + np.float64(2.)
torch.ones(2, device=device) > np.int64(0)
torch.arange(4, device=device)[np.arange(2)]
np.mean([torch.tensor(1., device=device).item(), 2])
torch.ones(2, device=device).detach().cpu().numpy().sum()
[float(v) for v in torch.arange(3., device=device)]
[list(torch.arange(3, device=device).cpu().numpy()), sum(torch.arange(3, device=device)), max(torch.arange(3, device=device)), min(torch.arange(3, device=device)), sorted(torch.arange(3, device=device).tolist())]
np.array(torch.tensor(3., device=device).item())
[np.log(torch.tensor(2., device=device).item()), math.sqrt(torch.tensor(4., device=device)), math.floor(torch.tensor(2.5, device=device)), math.isnan(torch.tensor(float("nan"), device=device)), abs(torch.tensor(-2, device=device)), divmod(torch.tensor(7, device=device).item(), 2), pow(torch.tensor(2., device=device), 3), 2 ** torch.tensor(3., device=device), 10 // torch.tensor(3., device=device), 10 % torch.tensor(3., device=device), 1 - torch.ones(1, device=device), 1 / torch.tensor(2., device=device)]
""",
    "views": """
x = torch.arange(24., device=device); [x.view(2, 3, 4), x.view(-1, 6), x.reshape(4, 6), x.view(2, 12).t(), x.unflatten(0, (4, 6)), x.view(torch.int32), x[None].expand(2, -1), x.as_strided((2, 2), (3, 1), 1)]
x = torch.arange(24., device=device).view(2, 3, 4); [x.permute(2, 0, 1), x.transpose(0, 2), x.movedim(0, -1), x.swapaxes(1, 2), x.flatten(1), x.unsqueeze(-1), x.narrow(1, 0, 2), x.select(0, 1), x.unfold(2, 2, 1), x.squeeze(), x.ravel()]
x = torch.arange(24., device=device).view(2, 3, 4); [x.split([1, 2], 1), x.chunk(2, 2), x.tensor_split(3, 2), torch.hsplit(x, 3), torch.vsplit(x, 2), torch.dsplit(x, 2), x.unbind()]
x = torch.arange(4., device=device); [x.repeat(2, 2), x.tile(2), x.repeat_interleave(2), x.repeat_interleave(torch.tensor([1, 0, 2, 1], device=device)), x.roll(1), x.flip(0), torch.flipud(x), x.view(2, 2).rot90(), x.view(2, 2).fliplr()]
a, b = torch.ones(2, 2, device=device), torch.zeros(2, 2, device=device); [torch.cat([a, b]), torch.stack([a, b], 1), torch.hstack([a, b]), torch.vstack([a, b]), torch.dstack([a, b]), torch.column_stack([a, b]), torch.concat([a, b], -1), torch.broadcast_tensors(a, b[:1]), torch.atleast_3d(a)]
x = torch.arange(24., device=device).view(2, 3, 4); y = x.transpose(0, 1); y.add_(1); y[0, 0] = 5; [x, y]
x = torch.arange(6., device=device); y = x.view(2, 3); y.t()[1] = -1; y.flatten()[0] = 9; x
x = torch.arange(6., device=device, requires_grad=True); y = x.clone().view(2, 3); y[0].mul_(2); y.t()[2].add_(x[:2]); y.sum().backward(); [x, y]
x = torch.arange(4., device=device); torch.unbind(x.view(2, 2))[0].zero_(); x
torch.arange(4., device=device).view(2, 2).view_as(torch.ones(4, 1))
torch.nn.functional.pad(torch.arange(4, device=device), (1, 0))
x = torch.arange(6., device=device).view(1, 2, 3, 1); [x.squeeze(0), x.squeeze((0, 3)), x.squeeze(1), x.expand_as(torch.ones(2, 2, 3, 1, device=device)), x.unsqueeze(0).shape]
torch.arange(6., device=device).view(2, 3).contiguous().data_ptr() != 0
""",
    "reductions": """
x = torch.randn(3, 4, device=device); [x.sum(), x.sum(0), x.mean(1, keepdim=True), x.std(), x.var(0, unbiased=False), x.prod(), x.max(), x.min(0), x.amax((0, 1)), x.argmax(), x.argmin(1), x.median(), x.mode(0), x.norm(), x.norm(1, 0), x.logsumexp(1), x.all(), x.any(0), x.count_nonzero(), x.nansum(), x.nanmean(), x.quantile(.3), x.quantile(torch.tensor([.1, .9], device=device), 1), x.aminmax(), torch.std_mean(x), torch.var_mean(x, 0)]
x = torch.randn(3, 4, device=device); [x.cumsum(0), x.cumprod(1), x.cummax(0), x.cummin(1), x.logcumsumexp(0), x.diff(), torch.trapz(x), torch.cumulative_trapezoid(x), torch.gradient(x)[0]]
x = torch.tensor([1, 2, 2, 3], device=device); [x.unique(), x.unique(return_counts=True, return_inverse=True), x.unique_consecutive(return_counts=True), x.bincount(), x.bincount(minlength=6, weights=torch.ones(4, device=device)), torch.histc(x.float(), 3), torch.histogram(x.float().cpu(), 3)[0], torch.isin(x, torch.tensor([2], device=device)), torch.bucketize(x, torch.tensor([1, 3], device=device)), torch.searchsorted(torch.tensor([1, 2, 3], device=device), x)]
torch.unique(torch.tensor([[1, 2], [1, 2], [0, 1]], device=device), dim=0, return_inverse=True)
x = torch.randn(6, device=device); [x.sort(), x.sort(descending=True, stable=True), x.argsort(), x.topk(3), x.topk(2, largest=False, sorted=False), x.kthvalue(2), x.msort(), torch.sort(torch.tensor([2, 1, 2], device=device), stable=True)]
x = torch.randn(4, 4, device=device); [x.tril(), x.triu(1), x.trace(), torch.diag(x), torch.diag_embed(x), torch.diagflat(x[0]), x.nonzero().shape, x.equal(x.clone()), torch.allclose(x, x), x.isclose(x), torch.is_nonzero(x[0, 0]), x.isnan().any(), x.isfinite().all(), x.isinf()]
x = torch.tensor([5, 3, -7], device=device); [x // 2, x % 3, x / 2, x & 1, x | 8, x ^ 1, ~x, x << 1, x >> 1, x.gcd(torch.tensor(6, device=device)), x.lcm(torch.tensor(6, device=device)), x.float().floor_divide(2), x.true_divide(2), torch.div(x, 2, rounding_mode="trunc"), x == 3, x != 3, x.lt(0), x.logical_and(x), x.logical_not(), x.sum(dtype=torch.float64), x.float().mean()]
[torch.tensor([1], dtype=torch.uint8, device=device) + 1.5, torch.tensor(1, device=device) + torch.tensor([1.], dtype=torch.half, device=device), torch.tensor([1], device=device) * True, torch.result_type(torch.ones(1, device=device), 1), torch.promote_types(torch.half, torch.float)]
x = torch.ones(2, device=device); [x + torch.tensor(1, dtype=torch.float64), x.half() + torch.tensor(1.), x.long() + torch.tensor(1.5), torch.tensor(2.) * x.half(), torch.where(x > 0, x, torch.tensor(0.)), torch.maximum(x, torch.tensor(3.)), x.pow(torch.tensor(2.)), torch.pow(torch.tensor(2.), x), x == torch.tensor(1), x.lerp(x, torch.tensor(.5)), torch.addcmul(x, x, x, value=2)]
x = torch.ones(2, device=device); x += torch.tensor(1., dtype=torch.float64); x.mul_(torch.tensor(3)); x
torch.clamp(torch.arange(5., device=device), torch.tensor(1., device=device), torch.tensor(3., device=device))
torch.quantize_per_tensor(torch.randn(4).to("cpu"), .1, 0, torch.qint8).dequantize().to(device)
torch.fake_quantize_per_tensor_affine(torch.randn(4, device=device), .1, 0, -128, 127)
x = torch.randn(4, device=device, requires_grad=True); backward(torch.fake_quantize_per_tensor_affine(x, torch.tensor(.1, device=device), torch.tensor(0, dtype=torch.int, device=device), -128, 127), x)
x = torch.randn(4, device=device, requires_grad=True); q = torch.round(x / .1) * .1; backward(x + (q - x).detach(), x)
x = torch.randn(3, 4, device=device, requires_grad=True); backward(torch.fake_quantize_per_channel_affine(x, torch.full((3,), .1, device=device), torch.zeros(3, dtype=torch.int, device=device), 0, -128, 127), x)
[torch.randn(4, device=device).to(torch.float8_e4m3fn).float(), torch.randn(4, device=device).to(torch.bfloat16), (torch.randn(4, device=device) * 10).to(torch.int8)]
""",
    "complex": """
x = torch.randn(3, dtype=torch.cfloat, device=device); [x, x.conj(), x.real, x.imag, x.abs(), x.angle(), x * 1j, x.conj().resolve_conj(), torch.view_as_real(x), x.conj() @ x, x.sgn(), x.exp()]
x = torch.randn(3, dtype=torch.cfloat, device=device, requires_grad=True); backward((x * x.conj()).real, x)
x = torch.randn(3, dtype=torch.cfloat, device=device, requires_grad=True); backward(x.abs(), x)
x = torch.randn(3, 2, device=device, requires_grad=True); backward(torch.view_as_complex(x).angle(), x)
x = torch.randn(3, dtype=torch.cfloat, device=device); x.imag.fill_(2); x.real += 1; x
x = torch.randn(3, dtype=torch.cfloat, device=device); [x.conj().imag, x.conj().imag + 1, x.conj().is_conj(), x.conj().imag.is_neg(), x.conj().clone(), x.conj().to(torch.complex128)]
[torch.tensor(1 + 2j, device=device).item(), complex(torch.tensor(1j, device=device)), torch.tensor([1j], device=device).tolist()]
m = nn.Linear(2, 2, dtype=torch.cfloat).to(device); x = torch.randn(3, 2, dtype=torch.cfloat, device=device); backward(m(x), m)
x = torch.randn(2, 2, dtype=torch.cfloat); x.conj().to(device)
x = torch.zeros(2, dtype=torch.cfloat, device=device); x[0] = 1j; x.conj()[1] = 1j; x
x = torch.randn(3, 3, dtype=torch.cfloat, device=device); [torch.linalg.eigvalsh(x + x.mH), torch.linalg.inv(x), x.mH @ x, torch.linalg.norm(x)]
torch.randn(2, dtype=torch.cfloat, device=device).conj().cpu()
""",
    "fft": """
x = torch.randn(8, device=device); [torch.fft.fft(x), torch.fft.rfft(x), torch.fft.ifft(torch.fft.fft(x)), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.hfft(x), torch.fft.fftshift(x), torch.fft.ifftshift(x)]
[torch.fft.fftfreq(5, device=device), torch.fft.rfftfreq(5, device=device)]
x = torch.randn(4, 4, device=device); [torch.fft.fft2(x), torch.fft.rfft2(x), torch.fft.fftn(x), torch.fft.irfftn(torch.fft.rfftn(x))]
x = torch.randn(8, device=device, requires_grad=True); backward(torch.fft.rfft(x).abs(), x)
x = torch.randn(2, 32, device=device, requires_grad=True); s = torch.stft(x, 8, window=torch.hann_window(8, device=device), return_complex=True); backward(torch.istft(s, 8, window=torch.hann_window(8, device=device)), x, s)
""",
    "sparse": """
torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=device), torch.tensor([1., 2.], device=device), (2, 3))
torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1., 2., 3.], (2, 3), device=device).coalesce()
torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1., 2., 3.], (2, 3), device=device).to_dense()
torch.sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2)).to(device)
torch.sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2), device=device).cpu()
s = torch.eye(3, device=device).to_sparse(); [s, s.t(), s * 2, s + s, s.indices(), s.values(), s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_sparse, s.is_coalesced()]
s = torch.eye(3, device=device).to_sparse(); [torch.sparse.mm(s, torch.ones(3, 2, device=device)), s @ torch.ones(3, device=device), torch.sparse.sum(s, 0), torch.sparse.softmax(s, 1), torch.sparse.addmm(torch.ones(3, 2, device=device), s, torch.ones(3, 2, device=device))]
s = torch.eye(3, device=device).to_sparse().requires_grad_(); torch.sparse.mm(s, torch.ones(3, 2, device=device)).sum().backward(); [s.grad, s.is_leaf]
d = torch.randn(3, 2, device=device, requires_grad=True); torch.sparse.mm(torch.eye(3, device=device).to_sparse(), d).sum().backward(); d
s = torch.eye(3, device=device).to_sparse_csr(); [s, s @ torch.ones(3, 2, device=device), s.to_dense(), s.crow_indices(), s.col_indices(), s.values()]
torch.sparse_csr_tensor(torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.tensor([1., 2.]), device=device)
s = torch.eye(3, device=device).to_sparse(); [saved(s), copy.deepcopy(s), s.clone(), s.double(), s.to_sparse_csr().to_sparse_coo(), str(s)]
torch.randn(3, 3, device=device).sparse_mask(torch.eye(3, device=device).to_sparse())
torch.stack([torch.eye(2, device=device).to_sparse()] * 2)
torch.cat([torch.eye(2, device=device).to_sparse()] * 2)
torch.ones(3, 3, device=device).to_sparse_bsr((1, 1))
torch.eye(4, device=device).to_sparse().index_select(0, torch.tensor([1, 2], device=device))
(torch.eye(3, device=device).to_sparse() * torch.ones(3, 3, device=device))
""",
    "sparse factories and inference": """
torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1., 2., 3.], device=device).to_dense()
torch.sparse_coo_tensor([[0, 1], [1, 0]], [1, 2], (2, 2), dtype=torch.float64, device=device, requires_grad=True)
torch.sparse_coo_tensor(indices=[[0, 1], [1, 0]], values=torch.ones(2, device=device), size=(2, 2))
torch.sparse_coo_tensor(np.array([[0, 1], [1, 0]]), np.ones(2), (2, 2), device=device)
torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.ones(2), (2, 2), device=device)
torch.sparse_coo_tensor([[], []], [], (2, 2), device=device)
torch.sparse_coo_tensor((2, 2), device=device)
torch.sparse_coo_tensor(size=(2, 2), device=device)
torch.sparse_coo_tensor([[0, 1], [1, 0]], [[1., 2.], [3., 4.]], (2, 2, 2), device=device)
v = torch.ones(2, device=device, requires_grad=True); s = torch.sparse_coo_tensor([[0, 1], [1, 0]], v, (2, 2)); torch.sparse.mm(s, torch.ones(2, 1, device=device)).sum().backward(); v
v = torch.ones(2, requires_grad=True); s = torch.sparse_coo_tensor([[0, 1], [1, 0]], v, (2, 2), device=device); torch.sparse.mm(s, torch.ones(2, 1, device=device)).sum().backward(); v
torch.sparse_csr_tensor([0, 1, 2], [0, 1], [1., 2.], device=device)
torch.sparse_csr_tensor(np.array([0, 1, 2]), [0, 1], torch.ones(2), size=(2, 2), device=device)
torch.sparse_compressed_tensor([0, 1, 2], [0, 1], [1., 2.], (2, 2), layout=torch.sparse_csr, device=device)
torch.sparse_bsr_tensor([0, 1, 2], [0, 1], [[[1.]], [[2.]]], (2, 2), device=device)
within(torch.device(device), lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2)))
within(torch.sparse.check_sparse_tensor_invariants(), lambda: torch.sparse_coo_tensor([[0, 1], [1, 0]], [1., 2.], (2, 2), device=device))
torch.sparse.spdiags(torch.ones(1, 2), torch.tensor([0]), (2, 2)).to(device)
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); y = x.view(2, 2); within(torch.inference_mode(), lambda: y.add_(1)); [x, y]
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); x.clone().requires_grad_()
x = torch.ones(4, device=device); y = within(torch.inference_mode(), lambda: x.view(2, 2)); y.add_(1); [x, y]
""",
    "linear algebra": """
a = torch.randn(3, 3, device=device); [torch.linalg.det(a), torch.linalg.inv(a), torch.linalg.slogdet(a), torch.linalg.matrix_rank(a), torch.linalg.cond(a)]
a = torch.randn(3, 3, device=device); [torch.linalg.svd(a), torch.linalg.svdvals(a), torch.linalg.qr(a), torch.linalg.lu(a)]
a = torch.randn(3, 3, device=device); a = a @ a.T + torch.eye(3, device=device); [torch.linalg.cholesky(a), torch.linalg.eigh(a), torch.linalg.eigvalsh(a), torch.cholesky_solve(torch.ones(3, 1, device=device), torch.linalg.cholesky(a))]
a = torch.randn(3, 3, device=device); [torch.linalg.eig(a), torch.linalg.eigvals(a)]
a = torch.randn(3, 3, device=device); [torch.linalg.norm(a), torch.linalg.vector_norm(a, 1), torch.linalg.matrix_norm(a, "nuc"), torch.linalg.cross(a, a + 1), torch.linalg.multi_dot([a, a, a])]
a = torch.randn(3, 3, device=device); [a @ a, a.mm(a), a.mv(a[0]), torch.dot(a[0], a[1]), torch.outer(a[0], a[1]), torch.addmm(a, a, a, beta=.5), torch.baddbmm(a[None], a[None], a[None]), torch.addmv(a[0], a, a[1]), torch.addr(a, a[0], a[1]), torch.chain_matmul(a, a), torch.kron(a, a), torch.trace(a), torch.ger(a[0], a[1]), torch.inner(a, a), torch.vdot(a[0], a[1])]
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.svd(a).S, a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.inv(a), a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.solve(a, torch.ones(3, device=device)), a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.cholesky(a @ a.T + torch.eye(3, device=device)), a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.eigh(a @ a.T).eigenvalues, a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.det(a), a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.qr(a).R, a)
a = torch.randn(3, 3, device=device); [torch.triangular_solve(torch.ones(3, 1, device=device), a.triu()), torch.linalg.solve_triangular(a.triu(), torch.ones(3, 1, device=device), upper=True), torch.lu_solve(torch.ones(3, 1, device=device), *torch.linalg.lu_factor(a)), torch.geqrf(a), torch.linalg.householder_product(*torch.geqrf(a)), torch.lobpcg(a @ a.T + 3 * torch.eye(3, device=device), 1)[0]]
a = torch.randn(2, 3, 4, device=device); [a.mT, a.mH, a[0].H, a.adjoint(), a[0].T, torch.linalg.vecdot(a, a), torch.linalg.diagonal(a)]
a = torch.randn(2, 3, 4, device=device); [torch.bmm(a, a.mT), torch.matmul(a, a[0].T), torch.einsum("bij,bkj->bik", a, a), torch.einsum("bii->b", a @ a.mT)]
a = torch.randn(3, 3, device=device); [torch.cov(a), torch.corrcoef(a), torch.linalg.tensorinv(torch.eye(6, device=device).reshape(2, 3, 6), 2), torch.linalg.ldl_factor(a + a.T), torch.svd_lowrank(a, 2)[1], torch.pca_lowrank(a, 2)[1]]
torch.pca_lowrank(torch.randn(6, 4, device=device), 2)
a = torch.randn(3, 3, device=device); [torch.linalg.svdvals(a), torch.linalg.cond(a), torch.linalg.matrix_norm(a, "nuc"), torch.linalg.matrix_norm(a, 2), torch.linalg.matrix_rank(a), torch.norm(a, "nuc")]
a = torch.randn(3, 3, device=device); [torch.linalg.eigvalsh(a + a.T), torch.linalg.eigvalsh(a + a.T, UPLO="U"), torch.linalg.matrix_rank(a + a.T, hermitian=True)]
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.svdvals(a), a)
a = torch.randn(3, 3, device=device, requires_grad=True); backward(torch.linalg.eigvalsh(a + a.T), a)
a = torch.randn(3, 3, device=device, requires_grad=True); within(torch.no_grad(), lambda: torch.linalg.svdvals(a))
a = torch.randn(3, 3, device=device); torch.func.jacfwd(torch.linalg.svdvals)(a)
a = torch.randn(3, 3, device=device); torch.func.jacrev(torch.linalg.svdvals)(a)
a = torch.randn(3, 3, device=device); torch.func.grad(lambda a: torch.linalg.eigvalsh(a + a.T).sum())(a)
a = torch.randn(2, 3, 3, device=device); torch.vmap(torch.linalg.svdvals)(a)
a = torch.randn(2, 3, 3, device=device); torch.vmap(torch.linalg.eigvalsh)(a + a.mT)
import torch.autograd.forward_ad as fwAD; a = torch.randn(3, 3, device=device); within(fwAD.dual_level(), lambda: [v.clone() for v in fwAD.unpack_dual(torch.linalg.svdvals(fwAD.make_dual(a, torch.ones(3, 3, device=device))))])
a = torch.randn(3, 3, device=device).double(); [torch.linalg.svdvals(a), a.svd(), torch.linalg.norm(a, 2), torch.linalg.norm(a, "nuc"), torch.linalg.pinv(a, hermitian=True)]
a = torch.randn(3, 3, dtype=torch.cfloat, device=device); [torch.linalg.eigvalsh(a + a.mH), torch.linalg.svdvals(a)]
""",
    "random": """
[torch.randn(2, device=device), torch.rand(2, device=device), torch.randint(5, (2,), device=device)]
g = torch.Generator(device=device).manual_seed(3); [torch.randn(2, generator=g, device=device), torch.randperm(4, generator=g, device=device), torch.rand(2, generator=g, device=device), torch.empty(2, device=device).normal_(generator=g), torch.multinomial(torch.ones(4, device=device), 2, generator=g), torch.bernoulli(torch.full((2,), .5, device=device), generator=g)]
g = torch.Generator(device=device); g.manual_seed(3); s = g.get_state(); a = torch.randn(2, generator=g, device=device); g.set_state(s); [a, torch.randn(2, generator=g, device=device), g.initial_seed()]
torch.manual_seed(5); a = torch.randn(2, device=device); torch.manual_seed(5); [a, torch.randn(2, device=device)]
a = torch.random.fork_rng(devices=[]); a.__enter__(); torch.manual_seed(1); r = torch.randn(2, device=device); a.__exit__(None, None, None); [r, torch.randn(2, device=device)]
[F.dropout(torch.ones(4, device=device), .5), nn.Dropout2d(.5)(torch.ones(1, 4, 2, 2, device=device)), torch.dropout(torch.ones(4, device=device), .3, True), F.dropout1d(torch.ones(2, 3, device=device)), torch.nn.functional.rrelu(torch.randn(3, device=device), training=True)]
torch.utils.data.random_split(range(5), [2, 3], generator=torch.Generator().manual_seed(1))[0].indices
""",
    "distributions": """
D = torch.distributions; d = D.Normal(torch.zeros(2, device=device), torch.ones(2, device=device)); [d.sample(), d.rsample((3,)), d.log_prob(torch.zeros(2, device=device)), d.entropy(), d.cdf(torch.zeros(2, device=device)), d.icdf(torch.full((2,), .3, device=device)), d.mean, d.stddev]
D = torch.distributions; d = D.Categorical(logits=torch.arange(4., device=device)); [d.sample((5,)), d.log_prob(torch.tensor(2, device=device)), d.entropy(), d.probs, d.mode]
D = torch.distributions; [D.Bernoulli(torch.full((2,), .3, device=device)).sample((3,)), D.Binomial(5, torch.full((2,), .3, device=device)).sample(), D.Beta(torch.ones(2, device=device), 2.).sample(), D.Gamma(torch.ones(2, device=device), torch.ones(2, device=device)).rsample(), D.Dirichlet(torch.ones(3, device=device)).rsample()]
D = torch.distributions; [D.Exponential(torch.ones(2, device=device)).rsample(), D.Laplace(torch.zeros(2, device=device), 1.).rsample(), D.Uniform(torch.zeros(2, device=device), 1.).rsample(), D.Poisson(torch.ones(2, device=device)).sample(), D.StudentT(torch.full((2,), 3., device=device)).rsample(), D.Gumbel(torch.zeros(2, device=device), 1.).rsample(), D.Cauchy(torch.zeros(2, device=device), 1.).rsample(), D.HalfNormal(torch.ones(2, device=device)).rsample(), D.LogNormal(torch.zeros(2, device=device), 1.).rsample(), D.Weibull(torch.ones(2, device=device), 1.).rsample(), D.Pareto(torch.ones(2, device=device), 1.).rsample(), D.Kumaraswamy(torch.ones(2, device=device), 1.).rsample()]
D = torch.distributions; d = D.MultivariateNormal(torch.zeros(2, device=device), torch.eye(2, device=device) * 2); [d.rsample((3,)), d.log_prob(torch.ones(2, device=device)), d.entropy(), d.covariance_matrix, d.precision_matrix]
D = torch.distributions; a = D.Normal(torch.zeros(2, device=device), 1.); b = D.Normal(torch.ones(2, device=device), 2.); [D.kl_divergence(a, b), D.kl_divergence(D.Categorical(logits=torch.ones(3, device=device)), D.Categorical(logits=torch.arange(3., device=device)))]
D = torch.distributions; d = D.TransformedDistribution(D.Normal(torch.zeros(2, device=device), 1.), [D.SigmoidTransform(), D.AffineTransform(1., 2.)]); [d.rsample(), d.log_prob(torch.full((2,), 1.5, device=device))]
D = torch.distributions; d = D.Independent(D.Normal(torch.zeros(2, 3, device=device), 1.), 1); [d.log_prob(torch.zeros(2, 3, device=device)), d.sample()]
D = torch.distributions; d = D.MixtureSameFamily(D.Categorical(torch.ones(3, device=device)), D.Normal(torch.randn(3, device=device), 1.)); [d.sample((2,)), d.log_prob(torch.zeros(1, device=device))]
D = torch.distributions; m = torch.ones(2, device=device, requires_grad=True); D.Gamma(m, torch.tensor(2., device=device)).log_prob(torch.tensor(1.5, device=device)).sum().backward(); m
D = torch.distributions; m = torch.ones(2, device=device, requires_grad=True); D.Normal(0., m).log_prob(torch.tensor(1.5, device=device)).sum().backward(); m
D = torch.distributions; m = torch.ones(2, device=device, requires_grad=True); D.Gamma(m, 1.).rsample().sum().backward(); m
D = torch.distributions; m = torch.ones(2, device=device, requires_grad=True); D.Dirichlet(m).rsample().prod().backward(); m
D = torch.distributions; d = D.RelaxedOneHotCategorical(torch.tensor(.5, device=device), logits=torch.ones(3, device=device)); [d.rsample(), D.OneHotCategoricalStraightThrough(logits=torch.ones(3, device=device)).rsample(), D.RelaxedBernoulli(torch.tensor(.5, device=device), torch.tensor(.3, device=device)).rsample()]
D = torch.distributions; [D.VonMises(torch.zeros(1, device=device), 1.).sample(), D.Wishart(torch.tensor(3., device=device), torch.eye(2, device=device)).rsample(), D.LKJCholesky(3, torch.tensor(1., device=device)).sample(), D.Geometric(torch.full((2,), .3, device=device)).sample(), D.NegativeBinomial(3, torch.full((2,), .3, device=device)).sample(), D.ContinuousBernoulli(torch.full((2,), .3, device=device)).rsample(), D.LowRankMultivariateNormal(torch.zeros(2, device=device), torch.ones(2, 1, device=device), torch.ones(2, device=device)).rsample(), D.Multinomial(5, torch.ones(3, device=device)).sample(), D.FisherSnedecor(torch.ones(2, device=device), 2.).rsample(), D.Chi2(torch.ones(2, device=device)).rsample()]
D = torch.distributions; [str(D.Normal(torch.zeros(2, device=device), 1.)), D.constraints.positive.check(torch.ones(2, device=device)), D.biject_to(D.constraints.simplex)(torch.ones(2, device=device)), D.transform_to(D.constraints.positive)(torch.ones(2, device=device))]
""",
    "foreach": """
x = [torch.ones(2, device=device), torch.arange(3., device=device)]; [torch._foreach_add(x, 1), torch._foreach_mul(x, x), torch._foreach_norm(x), torch._foreach_sqrt(x), torch._foreach_lerp(x, x, .5), torch._foreach_addcmul(x, x, x, 2.), torch._foreach_maximum(x, 1.), torch._foreach_div(x, [2., 3.]), torch._foreach_neg(x), torch._foreach_pow(x, 2)]
x = [torch.ones(2, device=device), torch.arange(3., device=device)]; torch._foreach_add_(x, 1); torch._foreach_mul_(x, [2., 3.]); torch._foreach_addcdiv_(x, x, x); torch._foreach_copy_(x, [torch.zeros(2), torch.ones(3)]); torch._foreach_zero_(x[:1]); x
x = [torch.ones(2, device=device), torch.arange(3., device=device)]; torch._foreach_mul_(x, torch.tensor(2., device=device)); torch._foreach_add_(x, torch.tensor(1.)); x
x = [torch.ones(2, device=device), torch.arange(3., device=device, dtype=torch.float64)]; [torch._foreach_add(x, x, alpha=2), torch._foreach_max(x), torch._foreach_sub(x, x), torch._foreach_exp(x), torch._foreach_clamp_min(x, 1.)]
x = [torch.ones(2, device=device, requires_grad=True), torch.arange(3., device=device, requires_grad=True)]; sum(t.sum() for t in torch._foreach_mul(x, 2)).backward(); x
""",
    "threads": """
r = []; t = threading.Thread(target=lambda: r.append(torch.ones(2, device=device) * 2)); t.start(); t.join(); r
from concurrent.futures import ThreadPoolExecutor; list(ThreadPoolExecutor(2).map(lambda i: torch.full((2,), i, device=device) + 1, range(3)))
x = torch.ones(2, device=device, requires_grad=True); t = threading.Thread(target=lambda: (x * 2).sum().backward()); t.start(); t.join(); x
r = []; t = threading.Thread(target=lambda: r.append(torch.randn(2, device=device))); t.start(); t.join(); r + [torch.randn(1, device=device)]
[b for b in torch.utils.data.DataLoader(torch.arange(6.).view(3, 2), batch_size=2, pin_memory=False)][0].to(device)
""",
    "lists and devices": """
x = torch.arange(4., device=device, requires_grad=True); torch.autograd.grad(x * x, x, torch.eye(4, device=device), is_grads_batched=True)
x = torch.tensor(.7, device=device, requires_grad=True); v = torch.as_tensor(x, dtype=torch.float32, device=device); ((v - 1).square() + x).backward(); x
x = torch.arange(3., requires_grad=True); torch.as_tensor(x, device=device).sum().backward(); x
x = torch.arange(3., device=device, requires_grad=True); torch.as_tensor(x, dtype=torch.float64).sum().backward(); x
within(torch.device(device), lambda: [torch.tensor(1.), torch.zeros(2), torch.as_tensor([1, 2]), torch.asarray([1.]), torch.arange(3)])
within(torch.device(device), lambda: nn.Linear(2, 2))
x = torch.randn(2, 3, 4, 4); [x.to(device).cpu(memory_format=torch.channels_last)]
within(torch.inference_mode(), lambda: nn.Parameter(torch.arange(4.))[None])
within(torch.inference_mode(), lambda: nn.Parameter(torch.arange(4., device=device))[None])
w = nn.Parameter(torch.arange(4.)); within(torch.inference_mode(), lambda: w.view(2, 2))
w = nn.Parameter(torch.arange(4., device=device)); within(torch.inference_mode(), lambda: w.view(2, 2))
torch.arange(24., device=device).view(4, 6)[[slice(None), slice(0, 2)]]
one = torch.tensor([1], device=device); torch.arange(24., device=device).view(4, 6)[[one, one]]
torch.arange(24., device=device).view(4, 6)[[None, 0]]
torch.arange(24., device=device).view(4, 6)[[..., 0]]
x = torch.ones(4, device=device); x[[slice(0, 2)]] = 5; x
x = torch.arange(12., device=device).view(3, 4); x[(0, 1), (2, 3)] = torch.tensor([8., 9.], device=device); x
x = torch.arange(12., device=device).view(3, 4); x[((0, 1), (2, 3))]
x = torch.arange(12., device=device).view(3, 4); x[..., (0, -1)]
torch.arange(12, device=device).view(3, 4)[:, [True, False, True, False]]
""",
}

# what both refuse, with the same words
ERRORS = """
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); nn.Linear(4, 1).to(device)(x)
x = within(torch.inference_mode(), lambda: torch.ones(4, 4, device=device)); nn.Linear(4, 1).to(device)(x)
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); x.add_(1)
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); x.view(2, 2).add_(1)
x = within(torch.inference_mode(), lambda: torch.ones(4, device=device)); x.requires_grad_()
x = torch.ones(2, device=device, requires_grad=True); x.add_(1)
x = torch.ones(2, device=device, requires_grad=True); y = x.exp(); y.add_(1); y.sum().backward()
x = torch.ones(2, device=device, requires_grad=True); y = (x * x).sum(); y.backward(); y.backward()
torch.ones(2, device=device).sum().backward()
x = torch.ones(2, device=device, requires_grad=True); (x * 2).backward()
torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
torch.ones(2, device=device) + torch.ones(3, device=device)
torch.ones(2, device=device)[5]
torch.ones(2, device=device).view(3)
torch.ones(2, device=device).item()
bool(torch.ones(2, device=device))
F.cross_entropy(torch.ones(2, 3, device=device), torch.ones(2, 3, dtype=torch.long, device=device))
nn.Linear(2, 2).to(device)(torch.ones(1, 3, device=device))
nn.Linear(2, 2).to(device).load_state_dict({"weight": torch.ones(3, 2, device=device)})
nn.Linear(2, 2).to(device)(torch.ones(1, 2, dtype=torch.long, device=device))
torch.linalg.cholesky(-torch.eye(2, device=device))
torch.linalg.inv(torch.zeros(2, 2, device=device))
copy.deepcopy(torch.ones(2, device=device, requires_grad=True) * 2)
torch.tensor([[1, 2], [3]], device=device)
torch.stack([torch.ones(2, device=device), torch.ones(3, device=device)])
torch.ones(2, device=device).requires_grad_().data.foo
x = torch.ones(2, 2, device=device); x[0, 1, 2]
torch.arange(3, device=device).requires_grad_()
torch.zeros(2, device=device).resize_(-1)
torch.optim.SGD([torch.ones(2, device=device, requires_grad=True) * 2], lr=.1)
x = torch.ones(2, device=device, requires_grad=True); setattr(x, "grad", torch.ones(3, device=device))
x = torch.ones(2, device=device); setattr(x, "grad", torch.ones(2, dtype=torch.half, device=device))
torch.expand_copy(torch.ones(2, device=device), (3,))
len(torch.tensor(1., device=device))
list(torch.tensor(1., device=device))
torch.ones(2, device=device).to("nowhere")
torch.zeros(1, device=device).sum(5)
nn.CrossEntropyLoss()(torch.ones(2, 3, device=device), torch.tensor([0., 1.], device=device))
torch.autograd.grad(torch.ones(1, device=device, requires_grad=True).sum(), torch.ones(1, device=device, requires_grad=True))
int(torch.tensor(float("nan"), device=device))
nn.LSTM(2, 2).to(device)(torch.ones(1, 1, 3, device=device))
nn.MultiheadAttention(3, 2)
F.binary_cross_entropy(torch.tensor([2.], device=device), torch.tensor([1.], device=device))
F.nll_loss(torch.ones(1, 2, device=device), torch.tensor([3], device=device))
torch.gather(torch.ones(2, device=device), 0, torch.tensor([3], device=device))
torch.multinomial(torch.zeros(3, device=device), 1)
torch.distributions.Normal(torch.zeros(1, device=device), -torch.ones(1, device=device))
"""
