package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

// figures is a file with the figures of each round, in the format of go test -bench, which benchstat reads.
type figures struct {
	file string // "": none is written
	text strings.Builder
}

func (f *figures) flags(flags *flag.FlagSet) {
	flags.StringVar(&f.file, "figures", "", "append the figures of each round to this file, for benchstat")
}

// figure is a value of each round.
type figure struct {
	unit   string
	values sample
}

// The units. benchstat takes a larger figure for worse, unless a line of the file says otherwise.
const (
	ofFloor    = "pct-of-floor" // the rate, in percent of the floor's
	objectUnit = "objects"
)

// add adds a benchmark. Figures without values are left out.
func (f *figures) add(name string, all ...figure) {
	for round := 0; ; round++ {
		var line strings.Builder
		for _, one := range all {
			if round < len(one.values) {
				fmt.Fprintf(&line, " %.4g %s", one.values[round], one.unit)
			}
		}
		if line.Len() == 0 {
			return
		}
		fmt.Fprintf(&f.text, "Benchmark%s 1%s\n", name, line.String())
	}
}

// addSeries adds what was measured of a contender: its rate as a part of the floor's, its CPU time by process, and its objects.
func (f *figures) addSeries(name string, s *series, floor sample) {
	var over sample
	if len(floor) == len(s.rates) {
		over = percent(s.rates.over(floor))
	}
	all := []figure{{ofFloor, over}, {objectUnit, s.allocs}}
	for part, process := range []string{"program", "postgres", "pulsar"} {
		var times sample
		for _, u := range s.usage {
			if part < len(u) {
				times = append(times, u[part])
			}
		}
		all = append(all, figure{"us-" + process, times})
	}
	f.add(name, all...)
}

func percent(ratios sample) sample {
	out := make(sample, len(ratios))
	for i, r := range ratios {
		out[i] = 100 * r
	}
	return out
}

// write appends to the file.
func (f *figures) write() error {
	if f.file == "" {
		return nil
	}
	file, err := os.OpenFile(f.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("-figures: %w", err)
	}
	_, err = file.WriteString("Unit " + ofFloor + " better=higher\n" + f.text.String())
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}
