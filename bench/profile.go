package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
)

// profiles are the files that a run writes for "go tool pprof". What runs within labelled has a label in the CPU profile, so that
// -tagfocus=run=NAME shows it alone.
type profiles struct {
	cpu string
	// objects counts every object. That makes a run slow, so its rates say nothing.
	objects string
}

func (p *profiles) flags(flags *flag.FlagSet) {
	flags.StringVar(&p.cpu, "cpuprofile", "", "write a CPU profile to this file")
	flags.StringVar(&p.objects, "memprofile", "", "write a profile of all objects to this file; show it with -sample_index=alloc_objects")
}

// start begins the profiles that are named. stop writes them.
func (p *profiles) start() (stop func() error, err error) {
	ends := []func() error{}
	stop = func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	if p.objects != "" {
		runtime.MemProfileRate = 1
		ends = append(ends, func() error { return writeObjects(p.objects) })
	}
	if p.cpu == "" {
		return stop, nil
	}
	f, err := os.Create(p.cpu)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(fmt.Errorf("profile: %w", err), f.Close())
	}
	ends = append(ends, func() error {
		pprof.StopCPUProfile()
		return f.Close()
	})
	return stop, nil
}

func writeObjects(file string) error {
	f, err := os.Create(file) //nolint:gosec // the user's own choice
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	runtime.GC() // the profile is that of the last collection
	return errors.Join(pprof.Lookup("allocs").WriteTo(f, 0), f.Close())
}

func labelled(ctx context.Context, run string, fn func(context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels("run", run), func(ctx context.Context) { err = fn(ctx) })
	return err
}

// named returns the variants that -only names, all of them if it is empty.
func named[V any](variants []V, name func(V) string, only string) []V {
	if only == "" {
		return variants
	}
	names := strings.Split(only, ",")
	return slices.DeleteFunc(variants, func(v V) bool { return !slices.Contains(names, name(v)) })
}
