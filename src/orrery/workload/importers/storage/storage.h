// Block storage requests as a graph: a Direct Drive service's hosts, their messages and what they
// do in between.
//
// A request is served slice by slice (parts go side by side), and is answered when all parts are:
//   read   client -> coordinator (request_size), lookup, back (reply_size): as `lookup` says;
//          client -> store (request_size), read, back (the bytes)
//   write  client -> coordinator (the bytes), journal, coordinator -> each replica's store (the
//          bytes), write, back (request_size); when all are there, coordinator -> client
//          (reply_size)
//   mount  client -> balancer -> gateway -> metadata service (reply_size each), lookup, and back
// A host serves one request at a time (processor 0), in the order in which they come to it;
// messages pass another (processor 1) and the interface, so that a disk at work holds up no
// message.
//
// Source: Direct Drive as ATLAHS has it (DirectDriveSim, TrimVis/DirectDriveGoalCreator 16947a8;
// Kramer, "Direct Drive", SNIA SDC 2022). Other than there: times of a trace may be kept, a
// transfer is as long as the request says, replicas are a number of one's own, a lookup may be left
// out, a store may collect garbage.
//
// Not seen: caches, failed hosts, answers by a quorum; an answer's order among a client's requests
// does not choose its next one, which its lane does.
//
// Requests are written in compact form (graph/services.h): some 100 bytes a request. WriteOut makes
// the graph of it: some 200 bytes a message. Cost: O(parts · replicas) both.
#pragma once

#include <string>

#include "orrery/base/status.h"
#include "orrery/graph/graph.h"
#include "orrery/graph/requests.h"
#include "orrery/graph/services.h"
#include "orrery/workload/importers/storage/load.h"
#include "orrery/workload/importers/storage/settings.h"

namespace orrery::workload {

struct StorageImport {
  graph::Graph graph;  // hosts and what they hold, without operations
  graph::Requests requests;
  graph::Services services;
};

// `name`: of the job in the graph.
Result<StorageImport> ImportStorage(const StorageLoad& load, const DirectDriveSettings& settings,
                                    const std::string& name);

// Writes the requests' operations into the graph.
void WriteOut(StorageImport* import);

}  // namespace orrery::workload
