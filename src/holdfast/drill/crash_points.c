/* A library to preload into a job's processes: it makes one file operation of the JVM fail.
 *
 * Spark writes each file of a checkpoint under a temporary name and renames it, so the calls
 * `open` (that creates a file) and `rename` mark every moment of a commit. No code of Spark or
 * the JVM has to be changed for it.
 *
 *   CRASH_POINT          "before open|before rename|after rename, N, ACTION, PATTERN", with blanks
 *                        between: the N-th such call in a process whose (new) path fits the
 *                        pattern of fnmatch(3). ACTION is kill (the process group), gate (wait
 *                        until the file CRASH_GATE is there), eio or enospc (the call fails).
 *   HOLDFAST_FAULTS_LOG  where a line is written, safely on disk, before anything happens.
 *
 * It acts once, in the first process that gets there: a file beside the log is the mark of it.
 * In all other processes, and without both variables, calls pass straight through.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*open_call)(const char *, int, ...);
typedef int (*rename_call)(const char *, const char *);

static char when[8], call[8], action[8], pattern[256], log_file[4096], mark[4096 + 8];
static const char *gate;
static int nth;
static atomic_int passes;

__attribute__((constructor)) static void read_environment(void) {
    const char *point = getenv("CRASH_POINT"), *log = getenv("HOLDFAST_FAULTS_LOG");
    if (!point || !log || strlen(log) >= sizeof log_file) return;
    if (sscanf(point, "%7s %7s %d %7s %255s", when, call, &nth, action, pattern) != 5) {
        nth = 0; /* no call is the zeroth: nothing ever happens */
        return;
    }
    gate = getenv("CRASH_GATE");
    strcpy(log_file, log);
    snprintf(mark, sizeof mark, "%s.crash", log);
}

/* Through the library below us: our own `open` would count itself. */
static int real_open(const char *path, int flags, mode_t mode) {
    static open_call next;
    if (!next) next = (open_call)dlsym(RTLD_NEXT, "open");
    return next(path, flags, mode);
}

static int is_first(void) {
    int file = real_open(mark, O_CREAT | O_EXCL | O_WRONLY, 0600);
    return file >= 0 && close(file) == 0;
}

static void note(void) {
    char line[512];
    int length = snprintf(line, sizeof line,
                          "{\"point\": \"%s %s %s\", \"action\": \"%s\", \"pass\": %d, \"pid\": %d}\n",
                          when, call, pattern, action, nth, (int)getpid());
    int file = real_open(log_file, O_CREAT | O_APPEND | O_WRONLY, 0600);
    if (file < 0 || write(file, line, length) != length || fsync(file) != 0)
        abort(); /* a fault that nobody can prove is worse than none */
    close(file);
}

/* The error that the call must fail with; 0: it may go on. */
static int fault(const char *moment, const char *name, const char *path) {
    if (!nth || strcmp(moment, when) || strcmp(name, call) || fnmatch(pattern, path, 0)) return 0;
    if (atomic_fetch_add(&passes, 1) + 1 != nth || !is_first()) return 0;
    note();
    if (!strcmp(action, "kill")) kill(0, SIGKILL);
    if (!strcmp(action, "gate"))
        while (gate && access(gate, F_OK) != 0) usleep(20000);
    return !strcmp(action, "eio") ? EIO : !strcmp(action, "enospc") ? ENOSPC : 0;
}

static int failed(int error) {
    errno = error;
    return -1;
}

int rename(const char *from, const char *to) {
    static rename_call next;
    if (!next) next = (rename_call)dlsym(RTLD_NEXT, "rename");
    int error = fault("before", "rename", to);
    if (error) return failed(error);
    int result = next(from, to);
    if (result == 0 && (error = fault("after", "rename", to))) return failed(error);
    return result;
}

static int create(const char *path, int flags, va_list rest) {
    int creates = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
    mode_t mode = creates ? va_arg(rest, mode_t) : 0;
    int error = creates ? fault("before", "open", path) : 0;
    return error ? failed(error) : real_open(path, flags, mode);
}

#define INTERPOSE_OPEN(NAME)                     \
    int NAME(const char *path, int flags, ...) { \
        va_list rest;                            \
        va_start(rest, flags);                   \
        int result = create(path, flags, rest);  \
        va_end(rest);                            \
        return result;                           \
    }

INTERPOSE_OPEN(open)
INTERPOSE_OPEN(open64) /* what the JVM calls; the same as open where off_t has 64 bits */
