package main

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// measureWindow lets the clients of a run go on for a length of time, and adds their rate, CPU time and objects to a series. count counts the clients'
// transactions or requests. The counter and the clock are read directly after each other. The readings of CPU time and objects take milliseconds, so
// they lie outside of the measured time, and what they allocate does not count. The CPU time includes what the clients do in these milliseconds.
func measureWindow(ctx context.Context, length time.Duration, count *atomic.Int64, m meter, to *series) {
	cpu, objects := m.read(), allocations()
	before, start := count.Load(), time.Now()
	pause(ctx, length)
	done, took := float64(count.Load()-before), time.Since(start)
	made := allocations() - objects
	to.add(done/took.Seconds(), m.read().since(cpu, done))
	to.allocs = append(to.allocs, float64(made)/done)
}

// allocations counts the objects that this program has allocated on its heap.
func allocations() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}
