#include "orrery/astra/mailbox.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace orrery::astra {
namespace {

constexpr Handler kFirst{Handler::Kind::kStream, 1, 0};
constexpr Handler kSecond{Handler::Kind::kNode, 2, 7};

TEST(Mailbox, TheNthMessageMeetsTheNthReceive) {
  Mailbox mail;
  const MailKey key{4096, 1, 0, 3};
  EXPECT_FALSE(mail.Receive(key, kFirst));
  EXPECT_FALSE(mail.Receive(key, kFirst));
  EXPECT_FALSE(mail.Receive(key, kSecond));  // another's, behind them
  EXPECT_FALSE(mail.Receive(key, kFirst));
  std::vector<Handler> heard;
  for (int i = 0; i < 4; ++i) {
    Handler receiver;
    ASSERT_TRUE(mail.Arrive(mail.Open(key), &receiver));
    heard.push_back(receiver);
  }
  EXPECT_EQ(heard, (std::vector<Handler>{kFirst, kFirst, kSecond, kFirst}));
  Handler receiver;
  EXPECT_FALSE(mail.Arrive(mail.Open(key), &receiver));  // waits
  EXPECT_FALSE(mail.Receive(MailKey{4095, 1, 0, 3}, kFirst)) << "a size that differs never meets";
  EXPECT_TRUE(mail.Receive(key, kFirst));
}

// A box that a phase keeps stays where it is; one that nothing uses is forgotten.
TEST(Mailbox, BoxesLiveWhileTheyAreUsed) {
  Mailbox mail;
  const MailKey key{64, 9, 1, 2};
  const std::uint32_t kept = mail.Open(key);
  mail.delay(kept) = 500;
  Handler receiver;
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(mail.Receive(kept, kFirst));
    mail.Keep(kept);
    EXPECT_TRUE(mail.Arrive(kept, &receiver));
  }
  EXPECT_EQ(mail.Open(key), kept);
  EXPECT_EQ(mail.delay(kept), 500u);
  mail.Drop(kept);
  mail.Drop(kept);
  EXPECT_EQ(mail.delay(mail.Open(key)), Mailbox::kUnknown);
}

// Beside a list a key, over enough keys that the table grows and closes gaps.
TEST(Mailbox, AsAListForEachKey) {
  Mailbox mail;
  std::map<std::uint32_t, std::pair<int, std::vector<Handler>>> model;  // arrived, waiting
  std::uint64_t state = 1;
  const auto draw = [&state](std::uint32_t below) {
    state = Mix64(state);
    return static_cast<std::uint32_t>(state % below);
  };
  for (int i = 0; i < 60'000; ++i) {
    const std::uint32_t number = draw(3000);
    const MailKey key{number % 7 + 1, number, number % 11, 11};
    auto& [arrived, waiting] = model[number];
    if (draw(2) == 0) {
      const Handler handler = draw(3) == 0 ? kSecond : kFirst;
      EXPECT_EQ(mail.Receive(key, handler), arrived > 0);
      if (arrived > 0) {
        --arrived;
      } else {
        waiting.push_back(handler);
      }
    } else {
      Handler receiver;
      ASSERT_EQ(mail.Arrive(mail.Open(key), &receiver), !waiting.empty());
      if (waiting.empty()) {
        ++arrived;
        continue;
      }
      EXPECT_EQ(receiver, waiting.front());
      waiting.erase(waiting.begin());
    }
  }
}

}  // namespace
}  // namespace orrery::astra
