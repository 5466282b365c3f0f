package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// command is a program that is released as a binary and as an image: the product, and the command that a module has under its own name, such as
// cmd/oncebox-nats of messaging/nats. Other commands of modules are for developers, who install them with go install.
type command struct {
	module *module
	name   string
}

// dir is the folder of the command within its module.
func (c *command) dir() string { return "cmd/" + c.name }

// path is the path of its package.
func (c *command) path() string { return c.module.path() + "/" + c.dir() }

// findCommands returns the commands of the modules. That of the root comes first.
func (r *rehearsal) findCommands() (all []*command) {
	for _, m := range r.modules {
		c := &command{module: m, name: r.name()}
		if m != r.root() {
			c.name += "-" + path.Base(m.dir)
		}
		if info, err := os.Stat(filepath.Join(r.source.dir, m.dir, c.dir())); err != nil || !info.IsDir() {
			continue
		}
		if m == r.root() {
			all = slices.Insert(all, 0, c)
			continue
		}
		all = append(all, c)
	}
	return all
}

// showsVersion runs a binary of a command, which has to say the version and its module.
func (r *rehearsal) showsVersion(ctx context.Context, c *command, binary string) error {
	out, err := output(ctx, r.scratch, nil, binary, "version")
	if err != nil {
		return err
	}
	for _, want := range []string{r.version, c.module.path()} {
		if !slices.Contains(strings.Fields(string(out)), want) {
			return fmt.Errorf("%s version does not say %s:\n%s", filepath.Base(binary), want, out)
		}
	}
	return nil
}
