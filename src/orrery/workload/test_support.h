// Graphs told in words, for tests: what a program does, one word per thing.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orrery/graph/graph.h"
#include "orrery/workload/generator.h"

namespace orrery::workload {

inline Model SmallGpt(int layers) {
  Model m;
  m.name = "small";
  m.layers = layers;
  m.hidden = 256;
  m.heads = m.kv_heads = 8;
  m.head_dim = 32;
  m.ffn_hidden = 1024;
  m.vocab = 1000;
  m.max_position = 512;
  return m;
}

// PyTorch's DistributedDataParallel, fp32.
inline Plan Ddp(int dp, std::int64_t microbatches = 1) {
  Plan p;
  p.parallel.dp = dp;
  p.batch.global_batch = dp * microbatches;
  p.batch.seq_len = 128;
  p.precision.type = Precision::kFp32;
  p.framework.attention = AttentionBackend::kUnfused;
  p.framework.reducer = Reducer::kDdp;
  p.framework.align_grad_reduce = false;
  p.framework.fused_adam = false;
  p.framework.clip_gradients = false;
  return p;
}

inline graph::Graph Make(const Model& model, const Plan& plan) {
  graph::Graph graph;
  Generator generator;
  const Status status = generator.AddJob(model, plan, "test", &graph);
  EXPECT_TRUE(status.ok()) << status.message();
  return graph;
}

inline const graph::Block& FindBlock(const graph::Graph& graph, std::string_view name) {
  for (const graph::Block& block : graph.blocks) {
    if (graph.name(block.name) == name) return block;
  }
  ADD_FAILURE() << "no block " << name;
  return graph.blocks.front();
}

inline double GemmFlops(const graph::Block& block) {
  double sum = 0;
  for (const graph::Kernel& kernel : block.kernels) {
    if (std::holds_alternative<graph::Gemm>(kernel)) sum += graph::Flops(kernel);
  }
  return sum;
}

inline std::string Join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

// "norm qkv all_gather+0 …": kernels by name, communication marked: "!" blocking, "+e" starts and
// records event e, "?e" waits for it. Memory left out.
inline std::string Operations(const graph::Graph& graph, const graph::Block& block) {
  std::vector<std::string> words;
  for (const graph::Op& op : block.ops) {
    const std::string name = op.name.valid() ? graph.name(op.name) : "";
    switch (op.kind) {
      case graph::OpKind::kKernel:
        words.push_back(name);
        break;
      case graph::OpKind::kComm: {
        const graph::Comm& comm = block.comms[op.index];
        words.push_back(comm.blocking ? name + "!" : fmt::format("{}+{}", name, comm.event));
        break;
      }
      case graph::OpKind::kWait:
        words.push_back(fmt::format("?{}", op.event));
        break;
      case graph::OpKind::kHostSync:
        words.push_back("sync");
        break;
      case graph::OpKind::kHostPace:
        words.push_back("pace");
        break;
      case graph::OpKind::kHost:
        words.push_back("host");
        break;
      case graph::OpKind::kAlloc:
      case graph::OpKind::kFree:
      case graph::OpKind::kTimed:
      case graph::OpKind::kRecord:
        break;
    }
  }
  return Join(words);
}

// The pipeline of a program: "F3/1" forward of micro-batch 3, chunk 1; "B3/1" its backward; "[sf
// rb]" a blocking exchange (send or receive, forward or backward); "sf+" one started; "?" a wait
// for the oldest; "R/0" a started bucket reduction. The rest is left out.
inline std::string Pipeline(const graph::Graph& graph, const graph::Program& program) {
  std::vector<std::string> words;
  const auto short_name = [](const std::string& name) {
    return std::string{name.front() == 's' ? 's' : 'r', name.ends_with("forward") ? 'f' : 'b'};
  };
  for (const graph::Call& call : program.calls) {
    const graph::Block& block = graph.blocks[call.block.index()];
    const std::string& name = graph.name(block.name);
    const std::string what = fmt::format("{}/{}", call.microbatch, call.chunk);
    if (name == "layer.forward") words.push_back(fmt::format("F{}", what));
    if (name == "layer.backward") words.push_back(fmt::format("B{}", what));
    if (name == "gradients.reduce") words.push_back("R");
    if (name == "pipeline.wait") words.push_back(fmt::format("?{}", call.event));
    if (name == "pipeline.exchange") {
      std::vector<std::string> parts;
      for (const graph::Op& op : block.ops) {
        if (op.kind == graph::OpKind::kComm) parts.push_back(short_name(graph.name(op.name)));
      }
      words.push_back(fmt::format("[{}]", Join(parts)));
    }
    if (name.starts_with("send_") || name.starts_with("receive_")) {
      words.push_back(fmt::format("{}+{}", short_name(name), call.event));
    }
  }
  return Join(words);
}

// Passes only: "F0/0 F1/0 B0/1 …".
inline std::string Passes(const graph::Graph& graph, const graph::Program& program) {
  std::vector<std::string> words;
  for (const graph::Call& call : program.calls) {
    const std::string& name = graph.name(graph.blocks[call.block.index()].name);
    if (name != "layer.forward" && name != "layer.backward") continue;
    words.push_back(
        fmt::format("{}{}/{}", name == "layer.forward" ? "F" : "B", call.microbatch, call.chunk));
  }
  return Join(words);
}

// Bytes of a block's communications of one kind.
inline std::int64_t Bytes(const graph::Block& block, graph::Collective kind) {
  std::int64_t sum = 0;
  for (const graph::Comm& comm : block.comms) {
    if (comm.collective == kind) sum += comm.bytes.value;
  }
  return sum;
}
// Bytes of the data-parallel group's communications over one iteration of the first program.
inline std::int64_t DpBytes(const graph::Graph& g, graph::Collective kind) {
  std::int64_t sum = 0;
  for (const graph::Call& call : g.programs[0].calls) {
    for (const graph::Comm& comm : g.blocks[call.block.index()].comms) {
      const bool counts = comm.collective == kind && comm.group == graph::GroupSlot::kDp;
      if (counts) sum += call.repeat * comm.bytes.value;
    }
  }
  return sum;
}

inline double BlockFlops(const graph::Block& block) {
  double sum = 0;
  for (const graph::Kernel& kernel : block.kernels) sum += graph::Flops(kernel);
  return sum;
}

// What a block's memory-bound kernels read and write, but for those of single columns (statistics).
inline std::int64_t Traffic(const graph::Graph& g, std::string_view block) {
  std::int64_t bytes = 0;
  for (const graph::Kernel& kernel : FindBlock(g, block).kernels) {
    const auto* k = std::get_if<graph::MemoryBound>(&kernel);
    if (k != nullptr && k->cols > 1) bytes += k->bytes_read + k->bytes_written;
  }
  return bytes;
}

// What a block leaves allocated for its micro-batch.
inline std::int64_t SavedBytes(const graph::Block& block) {
  std::int64_t sum = 0;
  for (const graph::Op& op : block.ops) {
    if (op.kind != graph::OpKind::kAlloc && op.kind != graph::OpKind::kFree) continue;
    const graph::Buffer& buffer = block.buffers[op.index];
    if (buffer.lifetime != graph::Lifetime::kMicrobatch) continue;
    sum += op.kind == graph::OpKind::kAlloc ? buffer.bytes : -buffer.bytes;
  }
  return sum;
}

}  // namespace orrery::workload
