#include "orrery/memory/library_memory.h"

#include <array>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace orrery::memory {
namespace {

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
  std::set<graph::GroupSlot> groups;
  std::set<std::pair<graph::PeerKind, std::int32_t>> peers;
  std::vector<bool> seen(graph.blocks.size());
  const auto visit = [&](const graph::Call& call) {
    if (call.block.index() >= seen.size() || seen[call.block.index()]) return;
    seen[call.block.index()] = true;
    for (const graph::Comm& comm : graph.blocks[call.block.index()].comms) {
      if (graph::IsCopy(comm.collective)) continue;
      if (!graph::IsPointToPoint(comm.collective)) {
        const GroupId id = binding != nullptr ? graph.group(*binding, comm.group) : GroupId();
        const bool met = binding == nullptr || (id.valid() && graph.groups.members(id).size() > 1);
        if (met) groups.insert(comm.group);
      } else if (comm.group != graph::GroupSlot::kTp) {  // userbuffers have their own
        const bool neighbour = comm.peer.kind == graph::PeerKind::kSlot;
        const bool met = binding == nullptr || !neighbour ||
                         binding->peers[static_cast<std::size_t>(comm.peer.slot())].valid();
        if (met) peers.emplace(comm.peer.kind, comm.peer.value);
      }
    }
  };
  for (const graph::Call& call : program.prologue) visit(call);
  for (const graph::Call& call : program.calls) visit(call);
  const auto channels = static_cast<std::int64_t>(groups.size()) * kCollectiveChannels +
                        static_cast<std::int64_t>(peers.size()) * 2 * kPeerChannels;
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
