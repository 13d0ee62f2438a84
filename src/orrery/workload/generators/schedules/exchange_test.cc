// Messages between stages: sizes, streams, tags, batches.
#include "orrery/workload/generators/schedules/exchange.h"

#include <gtest/gtest.h>

#include "orrery/workload/test_support.h"

namespace orrery::workload {
namespace {

Shape Sized(int tp, bool sp, bool scatter) {
  Plan p{.parallel = {.tp = tp, .sequence_parallel = sp},
         .batch = {.micro_batch = 2, .seq_len = 128}};
  p.framework.scatter_gather_p2p = scatter;
  return MakeShape(SmallGpt(2), p);
}

// s·b·h·2 bytes; a rank's slice under SP; a slice and a gather with the older optimisation.
TEST(Exchange, MessageSizes) {
  const std::int64_t full = 128 * 2 * 256 * 2;
  EXPECT_EQ(Sized(1, false, false).p2p_bytes(true), full);
  EXPECT_EQ(Sized(4, false, false).p2p_bytes(true), full);
  EXPECT_EQ(Sized(4, true, false).p2p_bytes(true), full / 4);
  EXPECT_EQ(Sized(4, false, true).p2p_bytes(true), full / 4);
  Names names;
  const graph::Block gathers =
      BatchedExchange(Sized(4, false, true), kSendNext | kRecvNext, &names);
  ASSERT_EQ(gathers.comms.size(), 3u);
  EXPECT_EQ(gathers.comms[2].collective, graph::Collective::kAllGather);
  EXPECT_EQ(gathers.comms[2].bytes.value, full);
}

TEST(Exchange, ABatchIsOneGroupCallOnOneStream) {
  Names names;
  const graph::Block b = BatchedExchange(Sized(1, false, false), kSendNext | kRecvNext, &names);
  ASSERT_EQ(b.comms.size(), 2u);
  for (const graph::Comm& comm : b.comms) {
    EXPECT_EQ(comm.batch, 1);
    EXPECT_EQ(comm.stream, kPpStream);
    EXPECT_TRUE(comm.blocking);
  }
  EXPECT_EQ(b.comms[0].tag, 0);  // activations
  EXPECT_EQ(b.comms[1].tag, 1);  // gradients
}

// An even stage sends to the next before it receives from the previous, an odd one the other way
// round; each direction has its own stream, and all are waited for.
TEST(Exchange, UnbatchedOrderFollowsParity) {
  Names names;
  const Shape s = Sized(1, false, false);
  const graph::Block even = UnbatchedExchange(s, kSendNext | kRecvPrevious, false, &names);
  const graph::Block odd = UnbatchedExchange(s, kSendNext | kRecvPrevious, true, &names);
  EXPECT_EQ(even.comms[0].collective, graph::Collective::kSend);
  EXPECT_EQ(odd.comms[0].collective, graph::Collective::kRecv);
  EXPECT_NE(even.comms[0].stream, even.comms[1].stream);
  for (const graph::Block* block : {&even, &odd}) {
    int waits = 0;
    for (const graph::Op& op : block->ops) waits += op.kind == graph::OpKind::kWait ? 1 : 0;
    EXPECT_EQ(waits, 2);
  }
}

// torch.distributed's Python stands around each message of its own, and once around a batch.
TEST(Exchange, PythonAroundMessages) {
  Plan p{.batch = {.micro_batch = 1, .seq_len = 128}};
  p.framework.host.communication = 1001;
  const Shape s = MakeShape(SmallGpt(2), p);
  Names names;
  EXPECT_EQ(UnbatchedExchange(s, kSendNext | kRecvPrevious, false, &names).host_ps.size(), 2u);
  EXPECT_EQ(BatchedExchange(s, kSendNext | kRecvPrevious, &names).host_ps.size(), 1u);
  EXPECT_EQ(StartExchange(s, kSendNext, &names).host_ps.size(), 1u);
  EXPECT_EQ(StartMessage(s, true, true, false, &names).host_ps.size(), 1u);
}

TEST(Exchange, MegatronSynchronisesTheHost) {
  Plan p{.batch = {.micro_batch = 1, .seq_len = 128}};
  p.framework.batch_p2p_sync = true;
  Names names;
  const graph::Block b = BatchedExchange(MakeShape(SmallGpt(2), p), kSendNext, &names);
  EXPECT_EQ(b.ops[2].kind, graph::OpKind::kHostSync);  // after the buffer and the send
  p.framework.cuda_graphs = CudaGraphs::kIteration;
  for (const graph::Op& op : BatchedExchange(MakeShape(SmallGpt(2), p), kSendNext, &names).ops) {
    EXPECT_NE(op.kind, graph::OpKind::kHostSync);
  }
}

}  // namespace
}  // namespace orrery::workload
