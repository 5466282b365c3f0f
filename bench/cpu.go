package main

import (
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// meter reads the CPU time of this program (or of others in its place), and of the servers on this machine that they
// use. CPU time per event is comparable also on a machine that does other work, where rates are not. It needs Linux's
// /proc and the right to read it; a value that cannot be read is NaN.
type meter struct {
	clients []int // process ids
	servers []int // 0: unknown
}

// newMeter finds the servers that listen at the addresses.
func newMeter(addresses ...string) meter {
	m := meter{clients: []int{os.Getpid()}}
	for _, address := range addresses {
		m.servers = append(m.servers, listener(address))
	}
	return m
}

// of returns a meter of these programs.
func (m meter) of(clients ...int) meter { return meter{clients: clients, servers: m.servers} }

// usage is CPU time in microseconds, or per event: of the programs, then of each server.
type usage []float64

func (m meter) read() usage {
	processes := map[int]process{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if text, err := os.ReadFile(file); err == nil { //nolint:gosec // below /proc
			if p, ok := parseProcess(string(text)); ok {
				processes[pid] = p
			}
		}
	}
	u := usage{0}
	for _, pid := range m.clients {
		client, ok := processes[pid]
		if !ok {
			client.own = math.NaN()
		}
		u[0] += client.own
	}
	for _, pid := range m.servers {
		total := math.NaN()
		if root, ok := processes[pid]; ok {
			total = root.own + root.ended
			for _, p := range processes {
				if p.parent == pid {
					total += p.own
				}
			}
		}
		u = append(u, total)
	}
	return u
}

// since returns what was used per event since the earlier reading.
func (u usage) since(earlier usage, events float64) usage {
	out := make(usage, len(u))
	for i := range u {
		out[i] = (u[i] - earlier[i]) / events
	}
	return out
}

// String joins the parts with plus signs.
func (u usage) String() string {
	parts := make([]string, len(u))
	for i, v := range u {
		parts[i] = strconv.FormatFloat(math.Round(v), 'f', -1, 64)
		if math.IsNaN(v) {
			parts[i] = "?"
		}
	}
	return strings.Join(parts, "+")
}

// listener returns the process that listens at the port of an address, 0 if it cannot be found.
func listener(address string) int {
	u, err := url.Parse(address)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return 0
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table) //nolint:gosec // one of the two
		if err != nil {
			continue
		}
		socket, ok := listeningSocket(string(text), port)
		if !ok {
			continue
		}
		files, _ := filepath.Glob("/proc/[0-9]*/fd/*")
		for _, file := range files {
			if target, err := os.Readlink(file); err == nil && target == "socket:["+socket+"]" {
				pid, _ := strconv.Atoi(strings.Split(file, "/")[2])
				return pid
			}
		}
	}
	return 0
}

// listeningSocket finds the inode of the socket that listens at a port in a table like /proc/net/tcp.
func listeningSocket(table string, port int) (inode string, ok bool) {
	const listening = "0A"
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return f[9], true
		}
	}
	return "", false
}

// process is a line of /proc/PID/stat: its CPU time and that of children that have ended, in microseconds.
type process struct {
	parent     int
	own, ended float64
}

// parseProcess reads "PID (NAME) STATE PARENT ...". The name may hold anything, parentheses too.
func parseProcess(stat string) (process, bool) {
	const tick = 10_000 // microseconds; USER_HZ is 100 on every Linux
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return process{}, false
	}
	number := func(i int) float64 {
		v, _ := strconv.ParseFloat(fields[i], 64)
		return v
	}
	return process{
		parent: int(number(1)), own: (number(11) + number(12)) * tick, ended: (number(13) + number(14)) * tick,
	}, true
}
