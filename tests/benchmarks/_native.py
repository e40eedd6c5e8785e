"""The same walk in C++, compiled when asked for: the limit of what a route around Python could reach."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import cpp_extension

SOURCE = """
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <unordered_set>

// number of nodes, and the leaf tensors
std::pair<int64_t, std::vector<at::Tensor>> walk_graph(const at::Tensor& loss) {
  using torch::autograd::Node;
  std::unordered_set<Node*> seen;
  std::vector<Node*> waiting;
  std::vector<at::Tensor> leaves;
  Node* root = loss.grad_fn().get();
  seen.insert(root);
  waiting.push_back(root);
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    if (node->num_outputs() == 0) {
      if (auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) leaves.push_back(leaf->variable);
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.function && seen.insert(edge.function.get()).second) waiting.push_back(edge.function.get());
    }
  }
  return {static_cast<int64_t>(seen.size()), leaves};
}
"""


def compiled_walk() -> Callable[[torch.Tensor], Any] | None:
    """Build the walk (a minute, the first time); None without a compiler."""
    if shutil.which("c++") is None and shutil.which("g++") is None:
        print("no C++ compiler: the compiled walk is left out", file=sys.stderr)
        return None
    version = torch.__version__.replace(".", "_").replace("+", "_")
    try:
        module = cpp_extension.load_inline(f"walk_{version}", SOURCE, functions=["walk_graph"], extra_cflags=["-O2"])
    except (OSError, RuntimeError, ImportError) as error:
        print(f"the compiled walk is left out: {error}", file=sys.stderr)
        return None
    return module.walk_graph  # type: ignore[no-any-return]
