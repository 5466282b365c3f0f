package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
)

// memory follows how much physical memory a process has. It needs Linux's /proc; else the figure is NaN.
type memory struct {
	quit chan struct{}
	most chan float64
}

func watchMemory(pid int) *memory {
	m := &memory{quit: make(chan struct{}), most: make(chan float64)}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		most := residentMemory(pid)
		for {
			select {
			case <-tick.C:
				most = max(most, residentMemory(pid))
			case <-m.quit:
				m.most <- most
				return
			}
		}
	}()
	return m
}

// stop returns the most that it had, in megabytes.
func (m *memory) stop() float64 {
	close(m.quit)
	return <-m.most
}

func residentMemory(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return math.NaN()
	}
	return parseResident(string(status))
}

// parseResident finds the line "VmRSS: 12345 kB".
func parseResident(status string) float64 {
	for line := range strings.Lines(status) {
		if size, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(size), " kB"), 64)
			if err == nil {
				return kb / 1024
			}
		}
	}
	return math.NaN()
}
