// `external`: a simulator of somebody else's, in a process of its own, over the line protocol of
// docs/formats/external-network.md. The program comes from the environment
// ($ORRERY_NETWORK_COMMAND), never from a job file: a job that is passed on must not start
// programs.
//
// Determinism is the program's: the same lines must give the same answers. One partition.
//
// Cost: two lines a message and one exchange (a write and a read of the socket) for each instant at
// which something starts or is asked for.
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "orrery/base/text.h"
#include "orrery/network/backends.h"
#include "orrery/network/wire.h"

namespace orrery::network {
namespace {

constexpr const char* kVariable = "ORRERY_NETWORK_COMMAND";
constexpr std::string_view kHello = "orrery-network 1";
constexpr int kPatienceMs = 300'000;           // for one answer
constexpr std::size_t kLongestLine = 1 << 16;  // of an answer

// A child with one socket for its standard input and output.
class Child {
 public:
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (socket_ < 0) return;
    close(socket_);  // its end of input
    int status = 0;
    for (int i = 0; i < 200; ++i) {
      if (waitpid(pid_, &status, WNOHANG) != 0) return;
      usleep(10'000);
    }
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }

  Status Start(const char* command) {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return ResourceError("no socket for the network's program: {}", std::strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    std::string shell = "sh", option = "-c", text = command;
    char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
    const int failed = posix_spawn(&pid_, "/bin/sh", &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (failed != 0) {
      close(ends[0]);
      return ResourceError("cannot run ${}: {}", kVariable, std::strerror(failed));
    }
    socket_ = ends[0];
    return {};
  }

  Status Write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return InvalidInput("${}: the program ended before it was done", kVariable);
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return {};
  }

  // Without its line break; valid until the next call.
  Result<std::string_view> ReadLine() {
    for (;;) {
      if (const std::size_t end = buffer_.find('\n', from_); end != std::string::npos) {
        const std::string_view line(buffer_.data() + from_, end - from_);
        from_ = end + 1;
        return line;
      }
      buffer_.erase(0, from_);
      from_ = 0;
      if (buffer_.size() > kLongestLine) return InvalidInput("${}: a line has no end", kVariable);
      pollfd ready{.fd = socket_, .events = POLLIN, .revents = 0};
      const int polled = poll(&ready, 1, kPatienceMs);
      if (polled < 0 && errno == EINTR) continue;
      if (polled == 0) {
        return InvalidInput("${}: no answer for {} s", kVariable, kPatienceMs / 1000);
      }
      char block[1 << 14];
      const ssize_t got = polled < 0 ? -1 : recv(socket_, block, sizeof block, 0);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return InvalidInput("${}: the program ended before it was done", kVariable);
      buffer_.append(block, static_cast<std::size_t>(got));
    }
  }

 private:
  int socket_ = -1;
  pid_t pid_ = 0;
  std::string buffer_;
  std::size_t from_ = 0;
};

// Words of an answer, taken from its front.
std::string_view TakeWord(std::string_view* line) {
  const std::size_t end = std::min(line->find(' '), line->size());
  const std::string_view word = line->substr(0, end);
  line->remove_prefix(std::min(end + 1, line->size()));
  return word;
}

Result<std::int64_t> TakeNumber(std::string_view* line, std::string_view whole) {
  const std::string_view word = TakeWord(line);
  if (word == "never") return kNever;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error == std::errc() && end == word.data() + word.size() && value >= 0 && !word.empty()) {
    return value;
  }
  return InvalidInput("${}: '{}' where a whole number of picoseconds or an id belongs, in '{}'",
                      kVariable, Printable(word, 40), Printable(whole, 80));
}

class External final : public Network {
 public:
  std::string_view name() const override { return "external"; }

  Status SetupLinks(const cluster::Cluster& cluster, std::span<const std::uint32_t>,
                    std::uint32_t) override {
    cluster_ = &cluster;
    const char* command = std::getenv(kVariable);
    if (command == nullptr || *command == '\0') {
      return InvalidInput(
          "network 'external' runs a program of yours: set {} to its command line "
          "(docs/formats/external-network.md)",
          kVariable);
    }
    ORRERY_RETURN_IF_ERROR(child_.Start(command));
    std::string text = fmt::format("{}\ndevices {}\n", kHello, cluster.devices());
    for (std::size_t i = 0; i < cluster.links().size(); ++i) {
      const cluster::Link& link = cluster.links()[i];
      text += fmt::format("link {} {} {} {} {}\n", i, link.bandwidth_Bps, link.latency,
                          link.mtu_bytes, cluster.link_name(LinkId(i)));
    }
    ORRERY_RETURN_IF_ERROR(child_.Write(text + "ready\n"));
    ORRERY_ASSIGN_OR_RETURN(const std::string_view answer, child_.ReadLine());
    if (answer == "ready") return {};
    return InvalidInput("${}: '{}' where 'ready' belongs", kVariable, Printable(answer, 80));
  }

  void Start(SimTime now, std::span<const Transfer> transfers) override {
    for (const Transfer& t : transfers) {
      cluster_->Route(t.from, t.to, t.salt, &path_);
      out_ += fmt::format("start {} {} {} {} {} {} {} {}", now, started_, t.from.value, t.to.value,
                          t.bytes, WireBytes(*cluster_, t.from, t.to, t.bytes, t.salt), t.creator,
                          t.priority);
      for (const LinkId link : path_) out_ += fmt::format(" {}", link.value);
      out_ += '\n';
      flying_.emplace(started_++, t.id);
    }
    asked_ = asked_ && transfers.empty();
  }

  SimTime next_time() const override {
    if (!status_.ok() || flying_.empty()) return kNever;
    if (!asked_) Keep(Ask());
    return status_.ok() ? next_ : kNever;
  }

  SimTime AdvanceUntil(SimTime t, std::vector<Completion>* done) override {
    if (!status_.ok() || flying_.empty()) return t;
    const std::size_t before = done->size();
    const Result<SimTime> reached = Advance(t, done);
    if (reached.ok()) return *reached;
    Keep(reached.status());
    done->resize(before);
    return t;
  }

  void TakeRemote(std::vector<RemoteHop>*) override {}
  void Deliver(const RemoteHop&) override {}
  SimTime lookahead() const override { return kNever; }
  std::span<const PortStatistics> statistics() override { return {}; }
  Status status() const override { return status_; }

 private:
  void Keep(Status status) const {
    if (status_.ok()) status_ = std::move(status);
  }
  Status Send(std::string_view request) const {
    out_ += request;
    Status sent = child_.Write(out_);
    out_.clear();
    return sent;
  }

  Status Ask() const {
    ORRERY_RETURN_IF_ERROR(Send("next\n"));
    ORRERY_ASSIGN_OR_RETURN(const std::string_view line, child_.ReadLine());
    std::string_view rest = line;
    if (TakeWord(&rest) != "next") {
      return InvalidInput("${}: '{}' where 'next TIME' belongs", kVariable, Printable(line, 80));
    }
    ORRERY_ASSIGN_OR_RETURN(next_, TakeNumber(&rest, line));
    asked_ = true;
    return {};
  }

  Result<SimTime> Advance(SimTime t, std::vector<Completion>* done) {
    ORRERY_RETURN_IF_ERROR(Send(t == kNever ? "until never\n" : fmt::format("until {}\n", t)));
    for (std::size_t ended = 0;; ++ended) {
      ORRERY_ASSIGN_OR_RETURN(const std::string_view line, child_.ReadLine());
      std::string_view rest = line;
      const std::string_view kind = TakeWord(&rest);
      ORRERY_ASSIGN_OR_RETURN(const SimTime time, TakeNumber(&rest, line));
      if (kind == "done") {
        ORRERY_ASSIGN_OR_RETURN(const std::int64_t id, TakeNumber(&rest, line));
        const bool one_instant = ended == 0 || done->back().time == time;
        const auto message = flying_.find(id);
        if (time > t || !one_instant || message == flying_.end()) {
          return InvalidInput(
              "${}: '{}' is later than was asked for, not of one instant with the others, or names "
              "no message under way",
              kVariable, Printable(line, 80));
        }
        done->push_back({.time = time, .id = message->second});
        flying_.erase(message);
        continue;
      }
      if (kind != "at" || time > t || (ended > 0 && time != done->back().time)) {
        return InvalidInput("${}: '{}' where 'done TIME ID' or 'at TIME NEXT' belongs", kVariable,
                            Printable(line, 80));
      }
      ORRERY_ASSIGN_OR_RETURN(next_, TakeNumber(&rest, line));
      asked_ = true;
      return ended > 0 ? time : t;
    }
  }

  const cluster::Cluster* cluster_ = nullptr;
  mutable Child child_;
  mutable std::string out_;  // starts that the program has not been told of
  mutable Status status_;
  mutable SimTime next_ = kNever;
  mutable bool asked_ = false;  // next_ holds
  std::int64_t started_ = 0;    // messages so far; each has a number of its own
  std::unordered_map<std::int64_t, FlightId> flying_;  // under way, by that number
  std::vector<LinkId> path_;                           // scratch
};

}  // namespace

std::unique_ptr<Network> MakeExternal() { return std::make_unique<External>(); }

}  // namespace orrery::network
