#include "orrery/workload/importers/pytorch/meetings.h"

#include <algorithm>
#include <limits>
#include <map>

#include "orrery/base/text.h"

namespace orrery::workload {
namespace {

constexpr std::int64_t kMostOffsetNs = 2'000'000'000'000'000'000;  // 63 years
constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();

bool IsMessage(const Communication& c) { return graph::IsPointToPoint(c.collective); }

class Matcher {
 public:
  explicit Matcher(std::span<const MetRank> ranks) : ranks_(ranks) {}

  Result<Meetings> Run() {
    ORRERY_RETURN_IF_ERROR(FindGroups());
    ORRERY_RETURN_IF_ERROR(Match());
    AlignClocks();
    Measure();
    return std::move(out_);
  }

 private:
  struct Member {
    std::uint32_t rank = 0, comm = 0;
  };
  using Meeting = std::vector<Member>;

  const Communication& at(const Member& m) const { return ranks_[m.rank].comms.list[m.comm]; }

  std::vector<std::uint32_t> World() const {
    std::vector<std::uint32_t> all(ranks_.size());
    for (std::uint32_t r = 0; r < all.size(); ++r) all[r] = r;
    return all;
  }

  // The members of a rank's group, as far as any profile tells.
  Result<std::vector<std::uint32_t>> MembersOf(std::uint32_t rank, const NamedGroup& g) {
    if (!g.ranks.empty()) return g.ranks;
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(g.size, 0));
    std::vector<std::uint32_t> naming;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (const NamedGroup& other : ranks_[r].comms.groups) {
        if (other.name != g.name) continue;
        naming.push_back(r);
        const bool own =
            std::find(other.ranks.begin(), other.ranks.end(), rank) != other.ranks.end();
        if (own && (size == 0 || other.ranks.size() == size)) return other.ranks;
        break;
      }
    }
    if (size == 0 || size == ranks_.size()) {
      if (size == 0) {
        out_.missing.insert(fmt::format("the members of group '{}': all ranks", Printable(g.name)));
      }
      return World();
    }
    if (naming.size() == size) {
      out_.assumed.insert("a process group whose members are not listed is the ranks that name it");
      return naming;
    }
    return InvalidInput(
        "'{}': group '{}' of {} ranks does not list its members, and {} of the ranks traced name "
        "it: give the profiles of all its members, or join execution traces",
        Printable(ranks_[rank].files->path), Printable(g.name), size, naming.size());
  }

  Status FindGroups() {
    std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::uint32_t> known;
    out_.group.resize(ranks_.size());
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      const Communications& comms = ranks_[r].comms;
      std::vector<std::uint32_t> number(comms.groups.size(), kUnknown);
      for (const Communication& c : comms.list) {
        std::uint32_t& group = number[c.group];
        if (group == kUnknown) {
          const NamedGroup& named = comms.groups[c.group];
          ORRERY_ASSIGN_OR_RETURN(std::vector<std::uint32_t> members, MembersOf(r, named));
          ORRERY_RETURN_IF_ERROR(CheckMembers(r, named, members));
          const auto [at, fresh] = known.try_emplace(
              {named.name, members}, static_cast<std::uint32_t>(out_.groups.size()));
          if (fresh) out_.groups.push_back({named.name, named.description, std::move(members)});
          group = at->second;
        }
        out_.group[r].push_back(group);
      }
    }
    return {};
  }
  Status CheckMembers(std::uint32_t rank, const NamedGroup& g,
                      const std::vector<std::uint32_t>& members) const {
    const std::string& path = ranks_[rank].files->path;
    std::vector<bool> seen(ranks_.size(), false);
    for (const std::uint32_t m : members) {
      if (m >= ranks_.size()) {
        return InvalidInput(
            "'{}': group '{}' has rank {}, and profiles of {} ranks were given: give one of each",
            Printable(path), Printable(g.name), m, ranks_.size());
      }
      if (seen[m]) {
        return InvalidInput("'{}': group '{}' has rank {} twice", Printable(path),
                            Printable(g.name), m);
      }
      seen[m] = true;
    }
    if (seen[rank]) return {};
    return InvalidInput("'{}': rank {} communicates in group '{}', which it is no member of",
                        Printable(path), rank, Printable(g.name));
  }

  Status Match() {
    // Of each group and rank its collectives, of each pair of ranks their messages.
    std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::uint32_t>>> collectives;
    struct Pair {
      std::vector<Member> sends, receives;
    };
    std::map<std::array<std::uint32_t, 3>, Pair> messages;  // group, from, to
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      for (std::uint32_t i = 0; i < ranks_[r].comms.list.size(); ++i) {
        const Communication& c = ranks_[r].comms.list[i];
        const std::uint32_t group = out_.group[r][i];
        if (!IsMessage(c)) {
          collectives[group][r].push_back(i);
          continue;
        }
        const auto& members = out_.groups[group].members;
        if (c.peer < 0 || std::find(members.begin(), members.end(),
                                    static_cast<std::uint32_t>(c.peer)) == members.end()) {
          return InvalidInput("'{}': '{}' names rank {}, which group '{}' does not have",
                              Printable(ranks_[r].files->path), Printable(c.name, 60), c.peer,
                              Printable(out_.groups[group].name));
        }
        const auto peer = static_cast<std::uint32_t>(c.peer);
        const bool send = c.collective == graph::Collective::kSend;
        Pair& pair = messages[{group, send ? r : peer, send ? peer : r}];
        (send ? pair.sends : pair.receives).push_back({r, i});
      }
    }
    for (const auto& [group, by_rank] : collectives) {
      ORRERY_RETURN_IF_ERROR(MatchCollectives(group, by_rank));
    }
    for (const auto& [key, pair] : messages) {
      if (pair.sends.size() != pair.receives.size()) {
        return InvalidInput(
            "rank {} sends rank {} {} messages in this step, which receives {}: choose another "
            "step (pytorch.step), or trace with a barrier before each",
            key[1], key[2], pair.sends.size(), pair.receives.size());
      }
      for (std::size_t k = 0; k < pair.sends.size(); ++k) {
        meetings_.push_back({pair.sends[k], pair.receives[k]});
      }
    }
    return {};
  }
  Status MatchCollectives(std::uint32_t group,
                          const std::map<std::uint32_t, std::vector<std::uint32_t>>& by_rank) {
    const MetGroup& g = out_.groups[group];
    const auto count = [&](std::uint32_t rank) {
      const auto at = by_rank.find(rank);
      return at == by_rank.end() ? std::size_t{0} : at->second.size();
    };
    for (const std::uint32_t m : g.members) {
      if (count(m) == count(g.members[0])) continue;
      return InvalidInput(
          "group '{}': rank {} has {} collectives in this step, rank {} has {}: choose another "
          "step (pytorch.step), or trace with a barrier before each",
          Printable(g.name), g.members[0], count(g.members[0]), m, count(m));
    }
    for (std::size_t k = 0; k < count(g.members[0]); ++k) {
      Meeting meeting;
      for (const std::uint32_t m : g.members) meeting.push_back({m, by_rank.at(m)[k]});
      const Communication& first = at(meeting[0]);
      for (const Member& member : meeting) {
        const Communication& c = at(member);
        if (c.collective == first.collective && c.bytes == first.bytes && c.type == first.type) {
          continue;
        }
        return InvalidInput(
            "group '{}', collective {}: rank {} has {} of {} bytes ('{}'), rank {} has {} of {} "
            "bytes ('{}')",
            Printable(g.name), k, g.members[0], graph::Name(first.collective), first.bytes,
            Printable(first.name, 60), member.rank, graph::Name(c.collective), c.bytes,
            Printable(c.name, 60));
      }
      meetings_.push_back(std::move(meeting));
    }
    return {};
  }

  // From rank 0 outwards, by what ranks share.
  void AlignClocks() {
    out_.clock_ns.assign(ranks_.size(), 0);
    std::vector<bool> known(ranks_.size(), false);
    const auto base = [&](std::uint32_t r) { return ranks_[r].files->profile.base_ns; };
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      out_.clock_ns[r] = base(r) - base(0);
      const std::string& host = ranks_[r].files->profile.host;
      known[r] = r == 0 || (!host.empty() && host == ranks_[0].files->profile.host);
    }
    bool estimated = false;
    for (bool more = true; more;) {
      more = false;
      std::map<std::uint32_t, std::vector<std::int64_t>> differences;  // of ranks to be known
      for (const Meeting& meeting : meetings_) {
        const auto reference = std::find_if(meeting.begin(), meeting.end(),
                                            [&](const Member& m) { return known[m.rank]; });
        if (reference == meeting.end()) continue;
        const std::int64_t end = at(*reference).end_ns + out_.clock_ns[reference->rank];
        for (const Member& m : meeting) {
          if (!known[m.rank]) differences[m.rank].push_back(end - at(m).end_ns);
        }
      }
      for (auto& [rank, list] : differences) {
        std::nth_element(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(list.size() / 2),
                         list.end());
        out_.clock_ns[rank] = std::clamp(list[list.size() / 2], -kMostOffsetNs, kMostOffsetNs);
        known[rank] = more = estimated = true;
      }
    }
    if (estimated) {
      out_.assumed.insert(
          "clocks of hosts differ by the median difference between the ends of communications that "
          "their ranks share");
    }
    if (std::find(known.begin(), known.end(), false) != known.end()) {
      out_.assumed.insert("clocks of ranks that share no communication agree");
    }
  }

  void Measure() {
    out_.measured_ns.resize(ranks_.size());
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
      out_.measured_ns[r].assign(ranks_[r].comms.list.size(), 0);
    }
    for (const Meeting& meeting : meetings_) {
      std::int64_t last = std::numeric_limits<std::int64_t>::min();
      for (const Member& m : meeting) last = std::max(last, at(m).start_ns + out_.clock_ns[m.rank]);
      for (const Member& m : meeting) {
        const std::int64_t end = at(m).end_ns + out_.clock_ns[m.rank];
        out_.measured_ns[m.rank][m.comm] = std::max<std::int64_t>(0, end - last);
      }
    }
  }

  std::span<const MetRank> ranks_;
  Meetings out_;
  std::vector<Meeting> meetings_;
};

}  // namespace

Result<Meetings> Meet(std::span<const MetRank> ranks) { return Matcher(ranks).Run(); }

}  // namespace orrery::workload
