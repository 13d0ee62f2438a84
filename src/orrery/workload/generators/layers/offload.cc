#include "orrery/workload/generators/layers/offload.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace orrery::workload {

using graph::Buffer;
using graph::Collective;
using graph::Lifetime;
using graph::MemoryKind;
using graph::Op;
using graph::OpKind;

graph::Comm HostCopy(Collective direction, std::int64_t bytes) {
  return {.collective = direction,
          .group = graph::GroupSlot::kOffload,
          .stream = direction == Collective::kCopyToHost ? kToHostStream : kToDeviceStream,
          .bytes = {.value = bytes}};
}

namespace {

graph::Comm Started(Collective direction, std::int64_t bytes) {
  graph::Comm copy = HostCopy(direction, bytes);
  copy.blocking = false;
  copy.event = graph::kCallEvent;
  return copy;
}

// Tensors by the module whose input they are.
constexpr std::pair<std::string_view, std::uint8_t> kInputs[] = {
    {"output", kOffloadAttnNorm},
    {"input_norm.output", kOffloadQkv},
    {"qkv", kOffloadCore},
    {"rotated", kOffloadCore},
    {"attention.repeated", kOffloadCore},
    {"latent.up", kOffloadCore},
    {"attention.context", kOffloadProjection},
    {"attention.gated", kOffloadProjection},
    {"middle", kOffloadMlpNorm},
    {"experts.input", kOffloadExpertFc1 | kOffloadGroupMlp},
    {"experts.fc1.output", kOffloadMoeAct | kOffloadGroupMlp},
    {"experts.activation.clamped", kOffloadGroupMlp},
    {"experts.activation.unweighted", kOffloadGroupMlp},
    {"experts.activation.output", kOffloadGroupMlp},
};

// What a layer keeps, but not what FSDP keeps of its parameters; of `modules` where these are
// named.
class Moves {
 public:
  Moves(std::uint8_t modules, Names* names) : all_(modules == 0) {
    for (const auto& [name, of] : kInputs) {
      if ((of & modules) != 0) named_.push_back(names->Intern(name));
    }
  }
  bool operator()(const Buffer& b) const {
    return b.lifetime == Lifetime::kMicrobatch && b.kind != MemoryKind::kParameter &&
           (all_ || std::find(named_.begin(), named_.end(), b.name) != named_.end());
  }

 private:
  bool all_;
  std::vector<NameId> named_;
};

// Operations are added in front of and behind those of a block.
class Wrapper {
 public:
  Wrapper(const graph::Block& block, const Moves& moves, Names* names)
      : out_(block), names_(names) {
    body_ = std::move(out_.ops);
    out_.ops.clear();
    // What was kept from call to call lives within this one.
    for (Buffer& b : out_.buffers) {
      if (moves(b)) b.lifetime = Lifetime::kCall;
    }
  }
  void Body() { out_.ops.insert(out_.ops.end(), body_.begin(), body_.end()); }
  void Wait() { Add(OpKind::kWait, 0, "offload.wait").event = graph::kCallEvent; }
  void Copy(std::string_view name, Collective direction, std::int64_t bytes) {
    Add(OpKind::kComm, out_.comms.size(), name);
    out_.comms.push_back(Started(direction, bytes));
  }
  void Memory(OpKind kind, const Buffer& buffer) {
    Add(kind, out_.buffers.size(), "").name = buffer.name;
    out_.buffers.push_back(buffer);
  }
  Buffer Temporary(std::uint32_t id, std::string_view name, std::int64_t bytes) {
    return {.id = id,
            .kind = MemoryKind::kActivation,
            .lifetime = Lifetime::kCall,
            .bytes = bytes,
            .name = names_->Intern(name)};
  }
  graph::Block Finish() {
    out_.Seal();
    return std::move(out_);
  }

 private:
  Op& Add(OpKind kind, std::size_t index, std::string_view name) {
    Op& op = out_.ops.emplace_back();
    op.kind = kind;
    op.index = static_cast<std::uint32_t>(index);
    if (!name.empty()) op.name = names_->Intern(name);
    op.module = names_->Intern("offload");
    return op;
  }

  graph::Block out_;
  std::vector<Op> body_;
  Names* names_;
};

// Buffers of the micro-batch that the block allocates, or frees, and the other not.
std::vector<Buffer> Kept(const graph::Block& block, OpKind kind, const Moves& moves) {
  std::vector<Buffer> kept;
  for (const Op& op : block.ops) {
    if (op.kind != OpKind::kAlloc && op.kind != OpKind::kFree) continue;
    const Buffer& b = block.buffers[op.index];
    if (!moves(b)) continue;
    const auto same =
        std::find_if(kept.begin(), kept.end(), [&](const Buffer& k) { return k.id == b.id; });
    if (op.kind == kind) {
      kept.push_back(b);
    } else if (same != kept.end()) {
      kept.erase(same);
    }
  }
  return kept;
}

std::int64_t BytesOf(const std::vector<Buffer>& kept) {
  std::int64_t sum = 0;
  for (const Buffer& b : kept) sum += b.bytes;
  return sum;
}

// The same, within the call.
std::vector<Buffer> Within(std::vector<Buffer> kept) {
  for (Buffer& b : kept) b.lifetime = Lifetime::kCall;
  return kept;
}

// Beside the ids of layers, ends and units.
constexpr std::uint32_t kUnderWay = 90;

}  // namespace

std::int64_t KeptBytes(const graph::Block& block, std::uint8_t modules, Names* names) {
  return BytesOf(Kept(block, OpKind::kAlloc, Moves(modules, names)));
}

graph::Block MoveOut(const graph::Block& forward, std::uint8_t modules, bool waits, Names* names) {
  const Moves moves(modules, names);
  const std::vector<Buffer> kept = Within(Kept(forward, OpKind::kAlloc, moves));
  const std::int64_t bytes = BytesOf(kept);
  Wrapper w(forward, moves, names);
  const Buffer leaving = w.Temporary(kUnderWay, "offload.leaving", waits ? bytes : 0);
  if (waits) w.Memory(OpKind::kAlloc, leaving);
  w.Body();
  if (waits) w.Wait();
  w.Copy("activations.to_host", Collective::kCopyToHost, bytes);
  if (waits) w.Memory(OpKind::kFree, leaving);
  for (const Buffer& b : kept) w.Memory(OpKind::kFree, b);
  return w.Finish();
}

graph::Block BringBack(const graph::Block& backward, std::uint8_t modules, std::int64_t bytes,
                       bool prefetches, Names* names) {
  const Moves moves(modules, names);
  const std::vector<Buffer> kept = Within(Kept(backward, OpKind::kFree, moves));
  Wrapper w(backward, moves, names);
  const Buffer coming = w.Temporary(kUnderWay, "offload.coming", bytes);
  for (const Buffer& b : kept) w.Memory(OpKind::kAlloc, b);
  w.Wait();
  if (prefetches) {
    w.Memory(OpKind::kAlloc, coming);
    w.Copy("activations.to_device", Collective::kCopyToDevice, bytes);
  }
  w.Body();
  if (prefetches) w.Memory(OpKind::kFree, coming);
  return w.Finish();
}

graph::Block BeginOut(const graph::Block& forward, std::uint8_t modules, Names* names) {
  BlockWriter w(names, "offload.begin", graph::Pass::kForward);
  w.Module("offload");
  w.Comm("activations.to_host",
         Started(Collective::kCopyToHost, KeptBytes(forward, modules, names)));
  return w.Finish();
}

graph::Block EndOut(const graph::Block& forward, std::uint8_t modules, Names* names) {
  BlockWriter w(names, "offload.end", graph::Pass::kForward);
  w.Module("offload");
  w.Wait("offload.wait", graph::kCallEvent);
  for (const Buffer& b : Kept(forward, OpKind::kAlloc, Moves(modules, names))) w.Free(b);
  return w.Finish();
}

graph::Block BeginBack(const graph::Block& forward, std::uint8_t modules, Names* names) {
  const std::vector<Buffer> kept = Kept(forward, OpKind::kAlloc, Moves(modules, names));
  BlockWriter w(names, "reload.begin", graph::Pass::kBackward);
  w.Module("offload");
  for (const Buffer& b : kept) w.Alloc(b);
  w.Comm("activations.to_device", Started(Collective::kCopyToDevice, BytesOf(kept)));
  return w.Finish();
}

graph::Block EndBack(Names* names) {
  BlockWriter w(names, "reload.end", graph::Pass::kBackward);
  w.Module("offload");
  w.Wait("offload.wait", graph::kCallEvent);
  return w.Finish();
}

graph::Block Reload(std::int64_t bytes, Names* names) {
  BlockWriter w(names, "offload.reload", graph::Pass::kBackward);
  w.Comm("activations.to_device", Started(Collective::kCopyToDevice, bytes));
  return w.Finish();
}

}  // namespace orrery::workload
