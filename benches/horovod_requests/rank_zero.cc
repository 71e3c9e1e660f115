// What a request costs rank 0 of Horovod without its response cache, in Horovod's own wire format.
//
//   git clone --recurse-submodules https://github.com/horovod/horovod
//   g++ -O2 -std=c++17 -I horovod/horovod/common -I horovod/third_party/flatbuffers/include \
//       benches/horovod_requests/rank_zero.cc horovod/horovod/common/message.cc -o rank_zero
//   ./rank_zero [RANKS [TENSORS]]
//   GLIBC_TUNABLES=glibc.malloc.tcache_count=0 ./rank_zero    # as glibc before 2.26, which had no thread cache
//
// `message.cc` packs and unpacks; what rank 0 does around it (mpi_controller.cc, controller.cc and
// stall_inspector.cc say what) is done here with the same containers: lists gathered into one buffer, each unpacked,
// copied as a whole, every request looked up and copied into the message table, its rank noted by the stall
// inspector, and, when all ranks have asked for a tensor, their requests compared in turn and let go of.
//
// Printed: nanoseconds a request, the least of several rounds (noise only adds); bytes a request.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "message.h"

using horovod::common::Request;
using horovod::common::RequestList;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kRounds = 7;
enum Part { kPack, kGather, kUnpack, kCopy, kTable, kAnswer, kFree, kParts };
const char* const kNames[kParts] = {"pack", "gather", "unpack", "copy", "table", "answer", "free"};

RequestList RequestsOf(int rank, int tensors) {
  RequestList list;
  for (int tensor = 0; tensor < tensors; ++tensor) {
    char name[96];
    std::snprintf(name, sizeof name,
                  "DistributedOptimizer.gradient/stage4.unit%03d.convolution.weight/all", tensor);
    Request request;
    request.set_request_rank(rank);
    request.set_request_type(Request::ALLREDUCE);
    request.set_tensor_type(horovod::common::HOROVOD_FLOAT32);
    request.set_tensor_name(name);
    request.set_device(rank % 6);
    request.set_tensor_shape({3, 3, 512, 512});
    list.add_request(request);
  }
  return list;
}

// Adds the time since `since` to a part, and begins the next.
void Add(double* parts, Part part, Clock::time_point& since) {
  const auto now = Clock::now();
  parts[part] += std::chrono::duration<double, std::nano>(now - since).count();
  since = now;
}

// What is compared is compared in turn, over all requests; whether they agree.
bool Agree(const std::vector<Request>& all) {
  bool agree = true;
  for (const auto& one : all) agree &= one.tensor_type() == all[0].tensor_type();
  for (const auto& one : all) agree &= one.request_type() == all[0].request_type();
  std::vector<std::int64_t> first;
  for (auto size : all[0].tensor_shape()) first.push_back(size);
  for (const auto& one : all) {
    std::vector<std::int64_t> shape;
    for (auto size : one.tensor_shape()) shape.push_back(size);
    agree &= shape == first;
  }
  for (const auto& one : all) agree &= one.prescale_factor() == all[0].prescale_factor();
  for (const auto& one : all) agree &= one.device() >= 0;
  std::vector<std::int32_t> devices(all.size());
  for (const auto& one : all) devices[one.request_rank()] = one.device();
  return agree && devices.size() == all.size();
}

// One cycle in which every rank asks for every tensor. Returns how many tensors were answered.
int Cycle(const std::vector<RequestList>& lists, double* parts, std::size_t& bytes) {
  const std::size_t ranks = lists.size();
  auto since = Clock::now();
  std::vector<std::string> packed(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    RequestList::SerializeToString(lists[rank], packed[rank]);
  Add(parts, kPack, since);

  bytes = 0;
  for (const auto& one : packed) bytes += one.size() + 1;
  auto* buffer = new std::uint8_t[bytes];
  std::vector<std::size_t> starts;
  std::size_t at = 0;
  for (const auto& one : packed) {
    std::memcpy(buffer + at, one.c_str(), one.size() + 1);
    starts.push_back(at);
    at += one.size() + 1;
  }
  Add(parts, kGather, since);

  std::vector<RequestList> ready;
  for (auto start : starts) {
    RequestList list;
    RequestList::ParseFromBytes(list, buffer + start);
    ready.push_back(std::move(list));
  }
  delete[] buffer;
  Add(parts, kUnpack, since);

  std::unordered_map<std::string, std::vector<Request>> table;
  std::unordered_map<std::string, std::tuple<std::vector<int>, Clock::time_point>> waiting;
  std::vector<std::string> complete;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    since = Clock::now();
    auto list = ready[rank];
    Add(parts, kCopy, since);
    for (const auto& request : list.requests()) {
      const auto& name = request.tensor_name();
      auto found = table.find(name);
      if (found == table.end()) {
        std::vector<Request> all = {request};
        all.reserve(ranks);
        found = table.emplace(name, std::move(all)).first;
      } else {
        found->second.push_back(request);
      }
      if (found->second.size() == ranks) complete.push_back(name);
      auto noted = waiting.find(name);
      if (noted == waiting.end()) {
        std::vector<int> who = {request.request_rank()};
        who.reserve(ranks);
        waiting.emplace(name, std::make_tuple(std::move(who), Clock::now()));
      } else {
        std::get<0>(noted->second).push_back(request.request_rank());
      }
    }
    Add(parts, kTable, since);
  }

  int answered = 0;
  for (const auto& name : complete) {
    auto found = table.find(name);
    answered += Agree(found->second);
    table.erase(found);
    waiting.erase(name);
  }
  Add(parts, kAnswer, since);
  ready.clear();
  Add(parts, kFree, since);
  return answered;
}

}  // namespace

int main(int count, char** words) {
  const int ranks = count > 1 ? std::atoi(words[1]) : 800;
  const int tensors = count > 2 ? std::atoi(words[2]) : 161;
  if (ranks < 1 || tensors < 1) {
    std::fprintf(stderr, "usage: rank_zero [RANKS [TENSORS]], both from 1 on\n");
    return 2;
  }
  std::vector<RequestList> lists;
  for (int rank = 0; rank < ranks; ++rank) lists.push_back(RequestsOf(rank, tensors));
  double best[kParts];
  std::size_t bytes = 0;
  for (int round = 0; round < kRounds; ++round) {
    double parts[kParts] = {};
    if (Cycle(lists, parts, bytes) != tensors) {
      std::fprintf(stderr, "not every tensor was answered\n");
      return 1;
    }
    for (int part = 0; part < kParts; ++part)
      best[part] = round && best[part] < parts[part] ? best[part] : parts[part];
  }
  const double each = static_cast<double>(ranks) * tensors;
  std::printf("part    ns_a_request\n");
  double whole = 0;
  for (int part = 0; part < kParts; ++part) {
    std::printf("%-6s  %12.1f\n", kNames[part], best[part] / each);
    if (part != kPack) whole += best[part] / each;
  }
  std::printf("rank_0  %12.1f\nbytes   %12.1f\n", whole, bytes / each);
  return 0;
}
