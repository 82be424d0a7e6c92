#include "stop_on_signal.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace corank {
namespace {

// Never destroyed, because the thread may outlive main() and static destructors.
std::stop_source& source = *new std::stop_source;
std::atomic<int> received = 0;

}  // namespace

StopOnSignal::StopOnSignal() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGHUP, SIGINT, SIGTERM}) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&signals, number);  // ignored under nohup and &
  }
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([signals] {
    int number = 0;
    sigwait(&signals, &number);
    received = number;
    source.request_stop();
    sigwait(&signals, &number);
    _exit(128 + number);
  }).detach();
}

std::stop_token StopOnSignal::token() const {
  return source.get_token();
}

int StopOnSignal::exit_code() {
  return 128 + received;
}

}  // namespace corank
