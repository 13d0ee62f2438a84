// Device memory that a training process holds outside its allocator: CUDA context, cuBLAS
// workspace, NCCL's buffers. Constants are typical nvidia-smi readings less torch's own figure; ±30
// %.
#pragma once

#include <cstdint>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"

namespace orrery::memory {

// Context with the kernels of torch and its libraries loaded, by architecture: bytes.
std::int64_t CudaContextBytes(cluster::Arch arch);
// cuBLAS workspace of one handle and stream: 32 MiB on Hopper and later, else 8 MiB and 128 KiB
// (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8, PyTorch's default).
std::int64_t CublasWorkspaceBytes(cluster::Arch arch);

// NCCL: a connection's buffers of one channel are 4 MiB (Simple) + 4.69 MiB (LL128) + 0.5 MiB (LL);
// a collective communicator has kCollectiveChannels, a peer of point-to-point kPeerChannels each
// way.
inline constexpr std::int64_t kNcclConnectionBytes = (4 << 20) + 120 * 640 * 8 * 8 + (512 << 10);
inline constexpr std::int64_t kCollectiveChannels = 16;
inline constexpr std::int64_t kPeerChannels = 2;
// Over the communications of `program` that have a partner in `binding` (null: all of them).
std::int64_t NcclBytes(const graph::Graph& graph, const graph::Program& program,
                       const graph::Binding* binding);

std::int64_t ContextBytes(const graph::Graph& graph, const graph::Program& program,
                          const graph::Binding* binding, const cluster::DeviceSpec& device);

}  // namespace orrery::memory
