/* Makes a million texts known to NVTX, none of which comes again, names a range by the first one, and says by how many KiB the process has
 * grown since a tenth of them were known. */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TEXTS 1000000

static long resident(void) {
  long pages = 0, kept = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &pages, &kept) != 2) exit(9);
  fclose(file);
  return kept * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(void) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("model");
  nvtxStringHandle_t first = nvtxDomainRegisterStringA(domain, "the first text");
  long before = 0;
  for (int n = 0; n < TEXTS; n++) {
    /* Without digits, which would be cut off. */
    char text[16];
    int at = 15, left = n;
    for (text[at] = 0; left || at == 15; left /= 26) text[--at] = (char)('a' + left % 26);
    nvtxDomainRegisterStringA(domain, text + at);
    if (n == TEXTS / 10) before = resident();
  }
  printf("%ld\n", resident() - before);
  nvtxEventAttributes_t of = {0};
  of.version = NVTX_VERSION;
  of.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  of.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  of.message.registered = first;
  nvtxDomainRangePushEx(domain, &of);
  nvtxDomainRangePop(domain);
  return 0;
}
