// The end of a process that has used oneCCL.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "ccl/engine.h"

namespace pyg_batchgnn {
namespace {

constexpr std::chrono::milliseconds kPatience(500);

}  // namespace

void Engine::watch_exit() {
  static const int registered = on_exit(&Engine::at_exit, this);
  TORCH_CHECK(registered == 0, "on_exit failed");
}

// Runs before oneCCL's destructors, which were registered earlier. They wait until no collective is
// under way, which takes forever if a peer is gone. In that case the process ends here. Python and
// C have done their clean-up by then, except the destructors of libraries loaded before oneCCL.
void Engine::at_exit(int status, void* engine) {
  Engine& self = *static_cast<Engine*>(engine);
  const bool held = self.lock_.try_lock_for(kPatience);  // never released: the background thread stops here
  if (!held || self.abandoned_ || self.under_way_ > 0) {
    std::fflush(nullptr);
    _exit(status);
  }
}

}  // namespace pyg_batchgnn
