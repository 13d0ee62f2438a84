#include "orrery/collective/choice/inert_variables.h"

#include <algorithm>

#include "orrery/base/text.h"

namespace orrery::collective {
namespace {

using std::string_view;

constexpr InertVariable kInert[] = {
    {"NCCL_CGA_CLUSTER_SIZE",
     "only places a kernel's thread blocks on the GPU; what they send stays the same"},
    {"NCCL_CTA_POLICY",
     "of collectives on registered buffers, which PyTorch and JAX do not have unless told"},
    {"NCCL_LL128_C2C", "of GPUs that meet over C2C; here they meet over NVLink or PCIe"},
    {"NCCL_LL_THRESHOLD", "obsolete: NCCL ignores it"},
    {"NCCL_SINGLE_RING_THRESHOLD", "obsolete: NCCL ignores it"},
    {"NCCL_TREE_THRESHOLD", "obsolete: NCCL ignores it"},
    {"NCCL_SYM_GIN_KERNELS_ENABLE", "symmetric kernels run on registered windows only"},
    {"NCCL_TUNER_PLUGIN", "no plugin is loaded"},
    {"NCCL_WIN_ENABLE", "nothing registers a window"},
    {"NCCL_CROSS_NIC",
     "rings keep to their rail wherever the number of domains is even, as with 0 and 2", "0|2",
     "lets rings change rails freely, which is not built; use 2, NCCL's default, or leave it out"},
    {"NCCL_DMABUF_ENABLE", "how GPU memory is registered with a NIC; it is reached either way"},
    {"NCCL_IB_CUDA_SUPPORT", "removed from NCCL"},
    {"NCCL_IB_DISABLE", "what carries messages between hosts is cluster.fabric"},
    {"NCCL_IB_HCA", "NICs have no names here; cluster.nics_per_node says how many there are"},
    {"NCCL_IB_MERGE_NICS",
     "give NICs as NCCL has merged them: cluster.nics_per_node, cluster.nic_bandwidth"},
    {"NCCL_MNNVL_CLIQUE_ID", "cluster.gpus_per_nvlink_domain says which hosts share NVLink"},
    {"NCCL_MNNVL_UUID", "cluster.gpus_per_nvlink_domain says which hosts share NVLink"},
    {"NCCL_NET", "what carries messages between hosts is cluster.fabric"},
    {"NCCL_NETDEVS_POLICY",
     "a GPU uses the NICs next to it, cluster.nics_per_node shared out evenly", "AUTO|ALL",
     "bounds the NICs of a GPU; say cluster.nics_per_node instead"},
    {"NCCL_NET_DISABLE_INTRA", "GPUs of a host never meet over NICs here"},
    {"NCCL_NET_FORCE_FLUSH", "0 is NCCL's own", "0",
     "adds a read by the NIC to every message received, which is not built; leave it out"},
    {"NCCL_NET_GDR_C2C", "NICs reach GPU memory here, by PCIe or C2C"},
    {"NCCL_NET_GDR_LEVEL",
     "GPUDirect RDMA between a GPU and its NIC is modelled as on, as at every level but LOC",
     "NVL|PIX|PXB|P2C|PXN|PHB|SYS|1|2|3|4|5",
     "sends through host memory, which is not built; leave it out"},
    {"NCCL_NET_GDR_READ",
     "NICs read GPU memory here, NCCL's default from Ampere on and with NVLink", "1",
     "sends through host memory, which is not built; leave it out"},
    {"NCCL_NET_MERGE_POLICY",
     "give NICs as NCCL has merged them: cluster.nics_per_node, cluster.nic_bandwidth"},
    {"NCCL_NET_PLUGIN", "what carries messages between hosts is cluster.fabric"},
    {"NCCL_NET_SHARED_BUFFERS",
     "where the buffers of sends over NICs lie, not how long they take; memory counts two channels "
     "a peer either way"},
    {"NCCL_NET_SHARED_COMMS", "every channel's connection is hashed by itself here"},
    {"NCCL_NVB_DISABLE", "no way over NVLink leads through another GPU here"},
    {"NCCL_P2P_MAX_PEERS", "not documented, its rule not known here", "none",
     "has an effect that is not known; leave it out"},
    {"NCCL_P2P_DIRECT_DISABLE", "of GPUs of one process; here a rank is a process"},
    {"NCCL_P2P_DISABLE",
     "GPUs of a host reach each other over NVLink or PCIe; where they cannot, they meet in host "
     "memory either way"},
    {"NCCL_P2P_LEVEL", "GPUs of a host use NVLink, which every level but LOC allows",
     "NVL|PIX|PXB|PHB|SYS|1|2|3|4|5",
     "sends through host memory, which is not built; leave it out"},
    {"NCCL_PXN_C2C", "NICs are next to their GPUs here, not behind C2C"},
    {"NCCL_SHM_DISABLE", "peers reach each other over NVLink or PCIe, not through host memory"},
    {"NCCL_TOPO_FILE",
     "the cluster section describes the host; to read this file: cluster.topology.file"},
    {"NCCL_IB_ADDR_FAMILY", "addresses only"},
    {"NCCL_IB_ADDR_RANGE", "addresses only"},
    {"NCCL_IB_ECE_ENABLE", "how NICs agree on options when they connect"},
    {"NCCL_IB_FIFO_TC", "all messages are of one traffic class here"},
    {"NCCL_IB_GID_INDEX", "addresses only"},
    {"NCCL_IB_OOO_RQ", "messages of a connection arrive in order here"},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "NICs reach the rates measured with it", "1|2",
     "slows NICs behind an IOMMU by an amount that is not known; leave it out"},
    {"NCCL_IB_RETRY_CNT", "nothing is lost here"},
    {"NCCL_IB_ROCE_VERSION_NUM", "addresses only"},
    {"NCCL_IB_SL", "all messages are of one service level here"},
    {"NCCL_IB_SPLIT_DATA_ON_QPS",
     "halves of every message, or every other message: the same bytes on each path"},
    {"NCCL_IB_TC", "all messages are of one traffic class here"},
    {"NCCL_IB_TIMEOUT", "nothing is lost here"},
};

constexpr InertVariable kSymmetric = {"NCCL_SYM_*",
                                      "symmetric kernels run on registered windows only"};

constexpr string_view kIrrelevant[] = {
    "NCCL_CHECKS_DISABLE",
    "NCCL_CHECK_MODE",
    "NCCL_CHECK_POINTERS",
    "NCCL_COMM_BLOCKING",
    "NCCL_COMM_ID",
    "NCCL_CONF_FILE",
    "NCCL_CUMEM_ENABLE",
    "NCCL_CUMEM_HOST_ENABLE",
    "NCCL_DEBUG",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_DEBUG_TIMESTAMP_FORMAT",
    "NCCL_DEBUG_TIMESTAMP_LEVELS",
    "NCCL_ENV_PLUGIN",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_GRAPH_MIXING_SUPPORT",
    "NCCL_GRAPH_REGISTER",
    "NCCL_GRAPH_STREAM_ORDERING",
    "NCCL_HOSTID",
    "NCCL_IB_RETURN_ASYNC_EVENTS",
    "NCCL_IGNORE_COLLNET_MISMATCH",
    "NCCL_IGNORE_CPU_AFFINITY",
    "NCCL_IGNORE_NET_MISMATCH",
    "NCCL_IPC_USE_ABSTRACT_SOCKET",
    "NCCL_LAUNCH_MODE",
    "NCCL_LAUNCH_ORDER_IMPLICIT",
    "NCCL_LAUNCH_RACE_FATAL",
    "NCCL_LEGACY_CUDA_REGISTER",
    "NCCL_LOCAL_REGISTER",
    "NCCL_MEM_SYNC_DOMAIN",
    "NCCL_MULTI_RANK_GPU_ENABLE",
    "NCCL_OOB_NET_ENABLE",
    "NCCL_OOB_NET_IFNAME",
    "NCCL_PROFILER_PLUGIN",
    "NCCL_RAS_ADDR",
    "NCCL_RAS_ENABLE",
    "NCCL_RAS_TIMEOUT_FACTOR",
    "NCCL_RUNTIME_CONNECT",
    "NCCL_SET_STACK_SIZE",
    "NCCL_SET_THREAD_NAME",
    "NCCL_SOCKET_FAMILY",
    "NCCL_SOCKET_IFNAME",
    "NCCL_SOCKET_MAGIC",
    "NCCL_SOCKET_POLL_TIMEOUT_MSEC",
    "NCCL_SOCKET_RETRY_CNT",
    "NCCL_SOCKET_RETRY_SLEEP_MSEC",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_UID_STAGGER_RATE",
    "NCCL_UID_STAGGER_THRESHOLD",
};

}  // namespace

std::span<const InertVariable> InertVariables() { return kInert; }

const InertVariable* FindInert(string_view name) {
  const auto* found = std::ranges::find(kInert, name, &InertVariable::name);
  if (found != std::end(kInert)) return found;
  return name.starts_with("NCCL_SYM_") ? &kSymmetric : nullptr;
}

Status CheckInert(const InertVariable& variable, string_view value) {
  string_view rest = variable.only;
  if (rest.empty()) return {};
  for (;;) {
    const std::size_t end = rest.find('|');
    if (Lower(rest.substr(0, end)) == Lower(value)) return {};
    if (end == string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return InvalidInput("'{}' {}", value, variable.otherwise);
}

std::span<const string_view> IrrelevantVariables() { return kIrrelevant; }

}  // namespace orrery::collective
