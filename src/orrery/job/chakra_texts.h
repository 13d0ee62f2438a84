// A rank's Chakra trace as text: JSON, as Chakra's jsonizer has it, and DOT, as its visualizer.
//
// JSON is a document a line, the metadata first and then a node each, by protobuf's JSON mapping:
// 64-bit numbers are strings, kinds have their names of the schema. DOT is one directed graph, an
// edge from each node to those that wait for it.
//
// Cost: O(operations).
#pragma once

#include <string>

#include "orrery/formats/chakra.h"

namespace orrery::job {

std::string ChakraToJson(const formats::ChakraTrace& trace);
// `title`: what the drawing is of.
std::string ChakraToDot(const formats::ChakraTrace& trace, const std::string& title);

}  // namespace orrery::job
