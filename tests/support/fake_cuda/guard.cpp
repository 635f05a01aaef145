// A device named cuda:0 for a build of torch that knows CPUs only: enough for autograd to run over fake tensors on it.
//
// Autograd asks the guard of a device for streams and for the number of devices before it starts, the rest of torch asks the hooks
// whether there is CUDA at all. Nothing here computes, and no memory is ever on this device. What is pinned for it is memory as any
// other, by whose address it is known.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <set>

namespace {

const c10::Device kOnly(c10::DeviceType::CUDA, 0);

struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device getDevice() const override { return kOnly; }
  c10::Device exchangeDevice(c10::Device) const override { return kOnly; }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream getNewStream(c10::Device, int = 0) const override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void synchronizeStream(const c10::Stream&) const override {}
  bool queryStream(const c10::Stream&) const override { return true; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {}

  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, kOnly); }
};

std::set<const void*> pinned;

struct Pinned final : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* data = c10::GetCPUAllocator()->raw_allocate(size);
    pinned.insert(data);
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* target, const void* source, size_t size) const override { default_copy_data(target, source, size); }

  static void release(void* data) {
    pinned.erase(data);
    c10::GetCPUAllocator()->raw_deallocate(data);
  }
};

Pinned pinning;

Guard guard;
c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::CUDA, &guard);

}  // namespace

namespace at {

struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinning; }
  bool isPinnedPtr(const void* data) const override { return pinned.count(data) != 0; }
  int getNumGPUs() const override { return 1; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex current_device() const override { return 0; }
  DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(DeviceIndex) const override {}
  DeviceIndex exchangeDevice(DeviceIndex) const override { return 0; }
  DeviceIndex maybeExchangeDevice(DeviceIndex) const override { return 0; }
};

REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at
