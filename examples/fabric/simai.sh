#!/usr/bin/env bash
# The all-reduces whose completion times SimAI's ns-3 gives (A100, 100 Gb/s a GPU), as NCCL would run them and with SimAI's assumptions.
#
#   examples/fabric/simai.sh [PROGRAM]
#
# Fails where an assumption of SimAI's no longer gives its time within 5 %.
set -euo pipefail
orrery=${1:-build/release/orrery}
common=(--cluster a100-80g-roce-200g --set nccl.NCCL_ALGO=Ring --set nccl.NCCL_PROTO=Simple)
as_nccl=(--network flow --set cluster.nic_bandwidth=100Gb/s)
# A flow a step, a ring and GPU, on a queue pair of its own: nothing before the first step, 3 us a step, no thread block, no slices. Packets of
# 9,000 B and 48 B of headers; 300 GB/s and 100 Gb/s are reached (line-rate.json); links of 25 and 500 ns, no PCIe.
as_simai=(--network flow-chunks --calibration "$(dirname "${BASH_SOURCE[0]}")/line-rate.json"
  --set nccl.NCCL_IB_QPS_PER_CONNECTION=8 --set nccl.NCCL_IB_SPLIT_DATA_ON_QPS=0
  --set nccl.ORRERY_SETUP_NS=0 --set nccl.ORRERY_SYNC_NS=0 --set nccl.ORRERY_POST_NVLINK_NS=3000 --set nccl.ORRERY_POST_NETWORK_NS=3000
  --set nccl.ORRERY_CHANNEL_GBPS=100000 --set nccl.ORRERY_RING_SLICES=1 --set nccl.NCCL_BUFFSIZE=67108864
  --set cluster.nvlink_latency=0.05us --set cluster.nvlink_packet_bytes=9000B
  --set cluster.nvlink_header_bytes=48B --set cluster.nic_bandwidth=100Gb/s --set cluster.nic_latency=0.5us
  --set cluster.nic_mtu_bytes=9000B --set cluster.nic_header_bytes=48B --set cluster.pcie_latency=0us)
eight_rings=(--set nccl.NCCL_MIN_CTAS=8 --set nccl.NCCL_MAX_CTAS=8)
# One of eight parallel rings: a GPU and a NIC a host.
one_ring=(--set cluster.gpus_per_node=1 --set cluster.gpus_per_nvlink_domain=1 --set cluster.nics_per_node=1)

time_of() { "$orrery" traffic all-reduce "${common[@]}" "$@" | awk '/^ *[0-9,]+ +[0-9.]+ / { print $2 }'; }
row() {  # row NAME THEIRS HOSTS MIB SETTING...
  local name=$1 theirs=$2 size=(--nodes "$3" --min "$4MiB" --max "$4MiB") rings=("${eight_rings[@]}") nccl simai
  shift 4
  if (($# > 0)); then rings=(--set nccl.NCCL_MAX_CTAS=1); fi
  nccl=$(time_of "${as_nccl[@]}" "${size[@]}" "$@")
  simai=$(time_of "${as_simai[@]}" "${rings[@]}" "${size[@]}" "$@")
  awk -v n="$name" -v t="$theirs" -v a="$nccl" -v b="$simai" \
    'BEGIN { e = 100 * (b / t - 1)
             printf "%-38s SimAI %7.1f us, its assumptions %7.1f us %+5.1f %%, NCCL %7.1f us\n", n, t, b, e, a
             exit (e > 5 || e < -5) }' || failed=1
}

failed=0
row '16 MiB, one host of 8 GPUs' 141.5 1 16
row '64 MiB, the same' 434.6 1 64
row '16 MiB over 16 GPUs' 340.6 2 16
row '16 MiB over 32 GPUs' 385.3 4 16
row '16 MiB over 64 GPUs' 601.7 8 16
row '16 MiB over 4 hosts, one GPU each' 2070 4 16 "${one_ring[@]}"
row '16 MiB over 8 hosts' 2455 8 16 "${one_ring[@]}"
row '16 MiB over 16 hosts' 2717 16 16 "${one_ring[@]}"
exit $failed
