package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// goCommand calls the go command with a cache of modules and with sources of modules of its own.
type goCommand struct{ env []string }

// fixed are settings of the go command that must not come from a person's environment: they change what is built. Without the paths of this machine
// (-trimpath) all builds share what was compiled before, wherever their modules are.
func fixed() []string {
	return []string{
		"GOFLAGS=-trimpath", "GOWORK=off", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOAMD64=v1", "GOARM64=v8.0", "GO111MODULE=on", "GOPRIVATE=", "GOTOOLCHAIN=local",
	}
}

// goHere is the go command with the caches of this machine.
func goHere() goCommand { return goCommand{env: fixed()} }

// run calls go in a folder.
func (g goCommand) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	if dir == "" {
		dir = os.TempDir() // not within a module
	}
	out, err := output(ctx, dir, g.env, "go", args...)
	if err != nil {
		return out, fmt.Errorf("go %s: %w", strings.Join(args[:min(2, len(args))], " "), err)
	}
	return out, nil
}

// with returns the command with more variables.
func (g goCommand) with(env ...string) goCommand {
	return goCommand{env: append(append([]string{}, g.env...), env...)}
}

// goFrom is the go command that fetches the released modules from the tags of the clone, as it would from a server, into the folder cache.
func (r *rehearsal) goFrom(cache string) goCommand {
	root := r.root().path()
	return goHere().with("GOMODCACHE="+cache, "GOFLAGS=-modcacherw", "GOPROXY=direct", "GOSUMDB=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+r.clone.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+root)
}

// proxy is the folder with the files of a module proxy for the released modules: https://go.dev/ref/mod#goproxy-protocol. The go command
// has written them when it fetched the modules.
func (r *rehearsal) proxy() string { return filepath.Join(r.scratch, "released", "cache", "download") }

// goOfStranger is the go command of a person who has never seen the repository: a cache of modules of its own, and the released modules from a
// proxy that is made of files. Other modules come from the cache of this machine, also as files, or from where it gets them.
func (r *rehearsal) goOfStranger(ctx context.Context) (goCommand, error) {
	here, err := goHere().run(ctx, "", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return goCommand{}, err
	}
	cache, others, _ := strings.Cut(strings.TrimSpace(string(here)), "\n")
	proxies := []string{"file://" + r.proxy(), "file://" + filepath.Join(cache, "cache", "download"), others}
	return goHere().with("GOMODCACHE="+filepath.Join(r.scratch, "stranger"), "GOFLAGS=-trimpath -modcacherw -mod=mod", "GOSUMDB=off",
		"GOPROXY="+strings.Join(proxies, ",")), nil
}
