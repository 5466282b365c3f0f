package walk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/oncebox/oncebox/internal/walk/trace"
)

const (
	module      = "github.com/oncebox/oncebox"
	traceImport = module + "/internal/walk/trace"
	scenario    = module + "/internal/walk/scenario"
)

// Record compiles the scenario in the folder dir and runs it. It returns the functions that each of several events has
// passed, in the order of the event that returned to the fewest files: goroutines that run beside each other alternate, on a busy machine more
// often. env has the scenario's variables with the addresses of the servers (ONCEBOX_...).
func Record(ctx context.Context, dir string, env []string) (Way, error) {
	lines := map[string]int{}
	program, err := build(ctx, dir, lines)
	if err != nil {
		return Way{}, err
	}
	cmd := exec.CommandContext(ctx, program) //nolint:gosec // it was compiled here
	cmd.Env = append(os.Environ(), env...)
	out, err := output(cmd)
	if err != nil {
		return Way{}, err
	}
	var entered []map[string][]string // one for each event
	if err := json.Unmarshal(out, &entered); err != nil {
		return Way{}, fmt.Errorf("walk: what the scenario printed: %w", err)
	}
	stops := func(event map[string][]string, stretch string) (list []Stop) {
		for _, place := range event[stretch] {
			if slices.ContainsFunc(entered, func(e map[string][]string) bool { return !slices.Contains(e[stretch], place) }) {
				continue // a function of a timer that happened to end meanwhile
			}
			file, name, _ := strings.Cut(place, " ")
			list = append(list, Stop{File: file, Func: name, Lines: lines[place]})
		}
		return list
	}
	var best Way
	for i, e := range entered {
		way := Way{Write: stops(e, trace.Write), Relay: stops(e, trace.Relay), Receive: stops(e, trace.Receive)}
		if i == 0 || FiguresOf(way.Read()).Returns < FiguresOf(best.Read()).Returns {
			best = way
		}
	}
	return best, nil
}

// build compiles the scenario from traced copies of the files, which replace the module's own only for this compilation
// ("go help build", -overlay).
func build(ctx context.Context, dir string, lines map[string]int) (program string, err error) {
	out, err := output(exec.CommandContext(ctx, "go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,Module", scenario))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("walk: what go list printed: %w", err)
		}
		if p.Module.Path == module && p.ImportPath != traceImport && p.ImportPath != scenario {
			if err := p.trace(dir, replace, lines); err != nil {
				return "", fmt.Errorf("walk: %s: %w", p.ImportPath, err)
			}
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "scenario")
	_, err = output(exec.CommandContext(ctx, "go", "build", "-overlay", file, "-o", program, scenario)) //nolint:gosec // names of our own
	return program, err
}

// listed is a package, as go list prints it.
type listed struct {
	ImportPath string   `json:"ImportPath"` //nolint:tagliatelle // of go list
	Dir        string   `json:"Dir"`        //nolint:tagliatelle // of go list
	GoFiles    []string `json:"GoFiles"`    //nolint:tagliatelle // of go list
	Module     struct {
		Path string `json:"Path"` //nolint:tagliatelle // of go list
		Dir  string `json:"Dir"`  //nolint:tagliatelle // of go list
	} `json:"Module"` //nolint:tagliatelle // of go list
}

// trace writes traced copies of the package's files into dir.
func (p *listed) trace(dir string, replace map[string]string, lines map[string]int) error {
	for _, name := range p.GoFiles {
		full := filepath.Join(p.Dir, name)
		place, err := filepath.Rel(p.Module.Dir, full)
		if err != nil {
			return err
		}
		text, err := traced(full, filepath.ToSlash(place), lines)
		if err != nil {
			return err
		}
		replace[full] = filepath.Join(dir, strings.ReplaceAll(filepath.ToSlash(place), "/", "-"))
		if err := os.WriteFile(replace[full], text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// output runs a command and returns its stdout. The error contains its stderr.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("walk: %s: %w\n%s", filepath.Base(cmd.Path), err, stderr.String())
	}
	return out, nil
}
