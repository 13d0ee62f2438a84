// Moye's own equations for a collective: 2 to 5 of the paper, with the parameters of its Table 5.
//
//   all-gather, ring       α + γ η (N - 1)                                    (2)
//   reduce-scatter, ring   α + η [β (N - 1) + γ (N - 1)] + δ S                (3)
//   all-reduce, ring       α + η [β (N - 1) + 2 γ (N - 1)] + δ S              (4)
//   all-reduce, tree       α + γ (η - 1) + 2 β (K - 1) + 2 γ log2 M + δ S     (5)
//
// N GPUs, M NVLink domains, K = N / M, S bytes, η rounds (ring) or chunks (tree) of a channel. β is
// missing in front of the bracket's first N - 1 as printed. docs/moye.md says how each symbol and
// each row of the table was read, and what speaks for it.
//
// Assumptions: Table 5 is of Tree LL128 over 4 x 8 H800 (its chunk sizes are NCCL's for that and
// nothing else), so β is its intra-server round trip over 2 (8 - 1) hops, γ its inter-server round
// trip over 2 log2 4 hops, δ its reduce row per byte, all by the bytes of a chunk: linear between
// the table's chunks, the first and last line drawn on beyond them. α is not printed for H800. In
// one domain γ = β: there is no other hop. log2 M is the levels of NCCL's tree, rounded down.
//
// Units: bytes and picoseconds; the table's own are µs. Cost: O(rows of the table) a price.
#pragma once

#include <cstdint>
#include <span>

#include "orrery/base/schema.h"
#include "orrery/base/status.h"
#include "orrery/collective/collective.h"

namespace orrery::collective {

// A column of Table 5 as printed; sizes in bytes, times in µs.
struct MoyeProfile {
  std::int64_t tensor_bytes = 0, chunk_bytes = 0;
  double intra_us = 0, inter_us = 0, reduce_us = 0;
};
std::span<const MoyeProfile> MoyeTable();

// What the equations take, in ps.
struct MoyeParameters {
  double beta = 0, gamma = 0;    // one hop in a domain, one between domains
  double delta = 0;              // per byte
  std::int64_t rounds = 0;       // η
  std::int64_t chunk_bytes = 0;  // by which the table was asked
  bool beyond = false;           // the table's chunks
};
// REQUIRES: MoyeHas(plan).
MoyeParameters MoyeParametersOf(const Plan& plan);

// An error that names the algorithm, protocol or shape for which there is no equation or no column.
Status MoyeHas(const Plan& plan);
// Contention is not in the equations: what is uncontended there takes longer only where others use
// the same ports. REQUIRES: MoyeHas(plan).
Cost MoyeCost(const Plan& plan, SimTime setup, const PortBytes& member, const cluster::Spec& spec);

// Section `collective` of a job file.
const OptionTable& CollectiveOptions();

}  // namespace orrery::collective
