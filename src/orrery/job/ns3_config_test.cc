// ns-3's RDMA configurations: every key of the files that people have is mapped, without effect, or
// refused by name.
#include "orrery/job/ns3_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "orrery/job/network_setup.h"

namespace orrery::job {
namespace {

using ::testing::HasSubstr;

// As SimAI ships it, without its paths.
constexpr std::string_view kSimAi = R"(ENABLE_QCN 1
USE_DYNAMIC_PFC_THRESHOLD 1

PACKET_PAYLOAD_SIZE 9000

FLOW_FILE flow.txt
TRACE_FILE trace.txt
TRACE_OUTPUT_FILE mix.tr
FCT_OUTPUT_FILE fct.txt
PFC_OUTPUT_FILE pfc.txt

SIMULATOR_STOP_TIME 40000000000000.00

CC_MODE 1
ALPHA_RESUME_INTERVAL 1
RATE_DECREASE_INTERVAL 4
CLAMP_TARGET_RATE 0
RP_TIMER 900
EWMA_GAIN 0.00390625
FAST_RECOVERY_TIMES 1
RATE_AI 50Mb/s
RATE_HAI 100Mb/s
MIN_RATE 100Mb/s
DCTCP_RATE_AI 1000Mb/s

ERROR_RATE_PER_LINK 0.0000
L2_CHUNK_SIZE 4000
L2_ACK_INTERVAL 1
L2_BACK_TO_ZERO 0

HAS_WIN 1
GLOBAL_T 0
VAR_WIN 1
FAST_REACT 1
U_TARGET 0.95
MI_THRESH 0
INT_MULTI 1
MULTI_RATE 0
SAMPLE_FEEDBACK 0
PINT_LOG_BASE 1.05
PINT_PROB 1.0

RATE_BOUND 1

ACK_HIGH_PRIO 0

LINK_DOWN 0 0 0

ENABLE_TRACE 1
TRACE_NODE 0

KMAX_MAP 6 25000000000 400 50000000000 800 100000000000 1600 200000000000 1200 400000000000 3200 1600000000000 2400
KMIN_MAP 6 25000000000 100 50000000000 200 100000000000 400 200000000000 300 400000000000 800 1600000000000 600
PMAX_MAP 6 25000000000 0.2 50000000000 0.2 100000000000 0.2 200000000000 0.8 400000000000 0.2 1600000000000 0.2

BUFFER_SIZE 32

QLEN_MON_FILE qlen.txt
BW_MON_FILE bw.txt
RATE_MON_FILE rate.txt
CNP_MON_FILE cnp.txt
MON_START 0
MON_END 20000
QP_MON_INTERVAL 100
QLEN_MON_INTERVAL 10000
BW_MON_INTERVAL 10000
)";

constexpr std::int64_t k400G = 50'000'000'000;

std::map<std::string, std::string> Packet(std::string_view text, std::int64_t nic_Bps = k400G) {
  const Result<Ns3Config> config = ReadNs3Config(text, "SimAI.conf", nic_Bps);
  EXPECT_TRUE(config.ok()) << config.status().message();
  std::map<std::string, std::string> keys;
  if (!config.ok()) return keys;
  for (const formats::Field& f : config->document.root.fields) keys[f.key] = f.value.text;
  return keys;
}
std::string ConfigError(std::string_view text) {
  return ReadNs3Config(text, "SimAI.conf", k400G).status().message();
}

TEST(Ns3Config, SimAisOwnFileBecomesKeysOfPacket) {
  const std::map<std::string, std::string> expected = {{"congestion_control", "dcqcn-mellanox"},
                                                       {"control_first", "false"},
                                                       {"alpha_interval", "1us"},
                                                       {"decrease_interval", "4us"},
                                                       {"increase_interval", "900us"},
                                                       {"clamp_target", "false"},
                                                       {"gain", "0.00390625"},
                                                       {"fast_recovery", "1"},
                                                       {"rate_ai", "50Mb/s"},
                                                       {"rate_hai", "100Mb/s"},
                                                       {"min_rate", "100Mb/s"},
                                                       {"ack_every", "1"},
                                                       {"rate_window", "varying"},
                                                       {"ecn_min", "800kB"},
                                                       {"ecn_max", "3200kB"},
                                                       {"ecn_most", "0.2"},
                                                       {"buffer", "32MiB"}};
  EXPECT_EQ(Packet(kSimAi), expected);
  const Result<Ns3Config> config = ReadNs3Config(kSimAi, "SimAI.conf", k400G);
  EXPECT_EQ(config->payload_bytes, 9000);
  ASSERT_EQ(config->notes.size(), 2u);
  EXPECT_THAT(config->notes[0], HasSubstr("without effect: FLOW_FILE, TRACE_FILE"));
  EXPECT_EQ(config->notes[1], "SimAI.conf: dcqcn-mellanox does not read U_TARGET, MI_THRESH");
}

TEST(Ns3Config, ThresholdsAreThoseOfTheNicsRate) {
  EXPECT_EQ(Packet(kSimAi, 25'000'000'000).at("ecn_most"), "0.8");
  EXPECT_EQ(Packet(kSimAi, 24'500'000'000).at("ecn_min"), "300kB");  // as it is calibrated
  EXPECT_THAT(ReadNs3Config(kSimAi, "f", 5'000'000'000).status().message(),
              HasSubstr("names no rate near the NIC's, 40 Gb/s"));
}

TEST(Ns3Config, EachModeReadsWhatItReads) {
  std::string text(kSimAi);
  text.replace(text.find("CC_MODE 1"), 9, "CC_MODE 3");
  const auto hpcc = Packet(text);
  EXPECT_EQ(hpcc.at("congestion_control"), "hpcc");
  EXPECT_EQ(hpcc.at("utilisation_target"), "0.95");
  EXPECT_EQ(hpcc.at("additive_stages"), "0");
  EXPECT_EQ(hpcc.at("rate_ai"), "50Mb/s");
  EXPECT_FALSE(hpcc.contains("gain"));
  EXPECT_FALSE(hpcc.contains("rate_window"));  // it has windows
  EXPECT_FALSE(hpcc.contains("ecn_min"));
  EXPECT_EQ(Packet("CC_MODE 12\nHAS_WIN 1\n").at("rate_window"), "bdp");
  EXPECT_FALSE(Packet("CC_MODE 12\nHAS_WIN 0\n").contains("rate_window"));
}

TEST(Ns3Config, WhatCannotBeHadIsRefusedByName) {
  EXPECT_THAT(ConfigError("CC_MODE 1\nRATE_IA 5Mb/s\n"),
              HasSubstr("SimAI.conf:2: unknown key 'RATE_IA'"));
  EXPECT_THAT(ConfigError("RATE_IA 5Mb/s\n"), HasSubstr("RATE_AI"));
  EXPECT_THAT(ConfigError("CC_MODE 4\n"), HasSubstr("SimAI.conf:1: CC_MODE 4 is none of 1"));
  EXPECT_THAT(ConfigError("LINK_DOWN 100 3 4\n"), HasSubstr("it may be 0 0 0"));
  EXPECT_THAT(ConfigError("ENABLE_QCN 0\n"), HasSubstr("ENABLE_QCN 0 is not built"));
  EXPECT_THAT(ConfigError("RP_TIMER soon\n"), HasSubstr("'soon' is not a number"));
  EXPECT_THAT(ConfigError("RP_TIMER\n"), HasSubstr("RP_TIMER has no value"));
  EXPECT_THAT(ConfigError("HAS_WIN 1\nHAS_WIN 0\n"), HasSubstr("stands in line 1 too"));
  EXPECT_THAT(ConfigError("KMIN_MAP 2 400000000000 800\n"),
              HasSubstr("KMIN_MAP wants a number of pairs"));
  EXPECT_THAT(ConfigError("\n# nothing\n"), HasSubstr("no line has a key"));
}

// A value that the key takes.
std::string Sample(std::string_view key, std::string_view unit) {
  if (key == "CC_MODE") return "3";
  if (key.ends_with("_MAP")) return key == "PMAX_MAP" ? "1 400000000000 0.2" : "1 400000000000 800";
  if (unit == "rate") return "50Mb/s";
  return "1";
}

// Whether some congestion control takes the line as the key of packet.
bool BecomesKey(const std::string& line, std::string_view packet) {
  for (const char* mode : {"1", "3", "7", "8", "10", "12"}) {
    const bool is_mode = line.starts_with("CC_MODE");
    const std::string text = (is_mode ? "" : fmt::format("CC_MODE {}\n", mode)) + line + "\n" +
                             (line.starts_with("VAR_WIN") ? "HAS_WIN 1\n" : "");
    const Result<Ns3Config> config = ReadNs3Config(text, "config.txt", k400G);
    EXPECT_TRUE(config.ok()) << config.status().message();
    if (!config.ok()) return false;
    if (packet == "cluster.nic_mtu_bytes") return config->payload_bytes == 1;
    const std::string_view key = packet == "window_of" ? "rate_window" : packet;
    for (const formats::Field& f : config->document.root.fields) {
      if (f.key == key && (f.value.line > 0 || is_mode)) return true;
    }
  }
  return false;
}

TEST(Ns3Config, EveryKeyOfTheTableIsMappedWithoutEffectOrRefused) {
  std::ifstream file(std::string(ORRERY_SOURCE_DIR) + "/data/ns3_keys.yaml");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto table = formats::ParseYaml(text, "ns3_keys.yaml");
  ASSERT_TRUE(table.ok()) << table.status().message();
  std::map<std::string, int> fates;
  for (const formats::Field& row : table->root.fields) {
    const auto of = [&](std::string_view key) {
      const formats::Node* node = row.value.Find(key);
      return node == nullptr ? std::string() : node->text;
    };
    EXPECT_FALSE(of("source").empty()) << row.key;
    if (!of("only").empty()) {
      EXPECT_EQ(Packet(row.key + " " + of("only") + "\n"), Packet("CC_MODE 1\n")) << row.key;
      EXPECT_THAT(ConfigError(row.key + " 77\n"), HasSubstr(row.key + " 77 is not built"));
      ++fates["refused"];
    } else if (of("packet").empty()) {
      const auto config = ReadNs3Config(row.key + " 1\n", "f", k400G);
      ASSERT_TRUE(config.ok()) << row.key;
      ASSERT_FALSE(config->notes.empty()) << row.key;
      EXPECT_EQ(config->notes[0],
                fmt::format("f: without effect: {} (data/ns3_keys.yaml says why)", row.key));
      ++fates["without effect"];
    } else {
      EXPECT_TRUE(BecomesKey(row.key + " " + Sample(row.key, of("unit")), of("packet"))) << row.key;
      ++fates["mapped"];
    }
  }
  EXPECT_GE(fates["mapped"], 20);
  EXPECT_GE(fates["without effect"], 20);
  EXPECT_GE(fates["refused"], 8);
}

TEST(Ns3Config, KeysGivenBesideTheFileComeFirst) {
  const std::string path = ::testing::TempDir() + "/SimAI.conf";
  std::ofstream(path) << kSimAi;
  const auto read = [&](std::vector<std::string> set) {
    set.push_back("packet.config=" + path);
    return ReadNetworkSetup("h100-ib-400g", 4, "packet", set, nullptr);
  };
  const auto setup = read({"packet.buffer=64MiB"});
  ASSERT_TRUE(setup.ok()) << setup.status().message();
  EXPECT_EQ(setup->parameters.packet.congestion_control, "dcqcn-mellanox");
  EXPECT_EQ(setup->parameters.packet.buffer, 64 << 20);
  EXPECT_EQ(setup->parameters.packet.control.increase_interval, 900 * kMicrosecond);
  EXPECT_EQ(setup->cluster.spec().nic_mtu_bytes, 9000);
  EXPECT_THAT(read({"packet.alpha_interval=x"}).status().message(), HasSubstr("alpha_interval"));
  const auto none = ReadNetworkSetup("h100-ib-400g", 4, "packet", {"packet.config=/none"}, nullptr);
  EXPECT_THAT(none.status().message(), HasSubstr("/none"));
}

// A cluster's file is changed by keys as a preset is.
TEST(NetworkSetup, KeysGivenBesideAClustersFileChangeIt) {
  const std::string path = ::testing::TempDir() + "/hosts.yaml";
  std::ofstream(path) << "preset: h100-ib-400g\noversubscription: 2\n";
  const auto setup = ReadNetworkSetup(path, 4, "flow", {"cluster.nodes_per_leaf=3"}, nullptr);
  ASSERT_TRUE(setup.ok()) << setup.status().message();
  EXPECT_EQ(setup->cluster.spec().oversubscription, 2);
  EXPECT_EQ(setup->cluster.spec().nodes_per_leaf, 3);
  std::ofstream(path) << "preset: " << path << "\n";  // no file begins with a file
  const auto circle = ReadNetworkSetup(path, 4, "flow", {"cluster.nodes_per_leaf=3"}, nullptr);
  EXPECT_THAT(circle.status().message(), HasSubstr("unknown cluster"));
}

}  // namespace
}  // namespace orrery::job
