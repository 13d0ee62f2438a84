// Device memory of libraries: what a training process holds outside PyTorch's allocator (CUDA
// context, NCCL's buffers, cuBLAS workspaces before PyTorch 2.0) and the workspaces that it holds
// inside. Context constants are typical nvidia-smi readings less torch's own figure; ±30 %.
#pragma once

#include <cstdint>
#include <vector>

#include "orrery/cluster/cluster.h"
#include "orrery/graph/graph.h"
#include "orrery/memory/memory.h"

namespace orrery::memory {

// Context with the kernels of torch and its libraries loaded, by architecture: bytes.
std::int64_t CudaContextBytes(cluster::Arch arch);
// cuBLAS workspace of one handle and stream: 32 MiB on Hopper and later, else 8 MiB and 128 KiB
// (CUBLAS_WORKSPACE_CONFIG :4096:2:16:8, PyTorch's default).
std::int64_t CublasWorkspaceBytes(cluster::Arch arch);
// A handle a thread: the forward pass and autograd's backward thread have one each.
inline constexpr int kCublasHandles = 2;
// CUBLAS_WORKSPACE_CONFIG=:4096:8, which deterministic runs set.
inline constexpr std::int64_t kDeterministicCublasBytes = 8 * 4096 * 1024;
// Transformer Engine's own GEMM workspace: 32 MiB on Hopper and later, else 4 MiB; one for each of
// three streams with userbuffers (transformer_engine/pytorch/module/base.py).
std::int64_t TransformerEngineBytes(cluster::Arch arch);
inline constexpr int kUserbufferStreams = 3;

// The workspaces that live in PyTorch's allocator, in bytes, as they are requested.
std::vector<std::int64_t> TorchWorkspaces(const Libraries& libraries, cluster::Arch arch);

// NCCL: a connection's buffers of one channel are 4 MiB (Simple) + 4.69 MiB (LL128) + 0.5 MiB (LL);
// a collective communicator has kCollectiveChannels, a peer of point-to-point kPeerChannels each
// way.
inline constexpr std::int64_t kNcclConnectionBytes = (4 << 20) + 120 * 640 * 8 * 8 + (512 << 10);
inline constexpr std::int64_t kCollectiveChannels = 16;
inline constexpr std::int64_t kPeerChannels = 2;
// Over the communications of `program` that have a partner in `binding` (null: all of them).
std::int64_t NcclBytes(const graph::Graph& graph, const graph::Program& program,
                       const graph::Binding* binding);

// Context, NCCL, userbuffers, and the cuBLAS workspaces where they live outside.
std::int64_t ContextBytes(const graph::Graph& graph, const graph::Program& program,
                          const graph::Binding* binding, const Libraries& libraries,
                          const cluster::DeviceSpec& device);

}  // namespace orrery::memory
