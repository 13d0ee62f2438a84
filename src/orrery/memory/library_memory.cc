#include "orrery/memory/library_memory.h"

#include <array>
#include <cstddef>
#include <vector>

namespace orrery::memory {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
// Volta, Ampere, Hopper, Blackwell: a process with torch, cuBLAS, cuDNN and NCCL kernels loaded.
constexpr std::array<std::int64_t, 4> kContext = {310 * kMiB, 430 * kMiB, 530 * kMiB, 600 * kMiB};

}  // namespace

std::int64_t CudaContextBytes(cluster::Arch arch) {
  return kContext[static_cast<std::size_t>(arch)];
}

std::int64_t CublasWorkspaceBytes(cluster::Arch arch) {
  return arch >= cluster::Arch::kHopper ? 32 * kMiB : 8 * kMiB + 128 * 1024;
}

std::int64_t NcclBytes(const graph::Graph& graph, const graph::Program& program,
                       const graph::Binding* binding) {
  std::array<bool, graph::kGroupSlots> groups{};
  std::array<bool, graph::kPeerSlots> peers{};
  std::vector<bool> seen(graph.blocks.size());
  const auto visit = [&](const graph::Call& call) {
    if (call.block.index() >= seen.size() || seen[call.block.index()]) return;
    seen[call.block.index()] = true;
    for (const graph::Comm& comm : graph.blocks[call.block.index()].comms) {
      if (graph::IsCopy(comm.collective)) continue;
      if (graph::IsPointToPoint(comm.collective)) {
        if (comm.group == graph::GroupSlot::kTp) continue;  // userbuffers have their own
        const std::size_t slot = static_cast<std::size_t>(comm.peer.slot());
        peers[slot] = peers[slot] || binding == nullptr || binding->peers[slot].valid();
        continue;
      }
      const std::size_t slot = static_cast<std::size_t>(comm.group);
      const bool met =
          binding == nullptr ||
          (binding->groups[slot].valid() && graph.groups.members(binding->groups[slot]).size() > 1);
      groups[slot] = groups[slot] || met;
    }
  };
  for (const graph::Call& call : program.prologue) visit(call);
  for (const graph::Call& call : program.calls) visit(call);
  std::int64_t channels = 0;
  for (const bool used : groups) channels += used ? kCollectiveChannels : 0;
  for (const bool used : peers) channels += used ? 2 * kPeerChannels : 0;
  return channels * kNcclConnectionBytes;
}

std::int64_t TransformerEngineBytes(cluster::Arch arch) {
  return arch >= cluster::Arch::kHopper ? 32 * kMiB : 4 * kMiB;
}

std::vector<std::int64_t> TorchWorkspaces(const Libraries& libraries, cluster::Arch arch) {
  std::vector<std::int64_t> bytes;
  if (libraries.cublas_in_torch) {
    const std::int64_t one =
        libraries.deterministic ? kDeterministicCublasBytes : CublasWorkspaceBytes(arch);
    bytes.assign(kCublasHandles, one);
  }
  if (libraries.transformer_engine) {
    bytes.insert(bytes.end(), libraries.userbuffers ? kUserbufferStreams : 1,
                 TransformerEngineBytes(arch));
  }
  return bytes;
}

std::int64_t ContextBytes(const graph::Graph& graph, const graph::Program& program,
                          const graph::Binding* binding, const Libraries& libraries,
                          const cluster::DeviceSpec& device) {
  const std::int64_t cublas =
      libraries.cublas_in_torch ? 0 : kCublasHandles * CublasWorkspaceBytes(device.arch);
  return CudaContextBytes(device.arch) + cublas + NcclBytes(graph, program, binding) +
         libraries.userbuffer_bytes;
}

}  // namespace orrery::memory
