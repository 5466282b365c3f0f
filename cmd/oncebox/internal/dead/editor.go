package dead

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unicode/utf8"

	"github.com/oncebox/oncebox/cmd/oncebox/internal/cli"
)

// editor lets the operator change a payload in an editor. JSON on one line is indented for that, and put on
// one line again afterwards.
func editor(ctx context.Context, s *cli.Session, d *editable) ([]byte, error) {
	program := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"))
	if program == "" {
		return nil, cli.Exit(cli.ExitUsage, errors.New("there is no editor: set EDITOR, or give --payload-file"))
	}
	// Editors change invalid UTF-8 when they save, and some cut the text at NUL.
	if !utf8.Valid(d.payload) || bytes.ContainsRune(d.payload, 0) {
		return nil, cli.Exit(cli.ExitUsage, errors.New("the payload is not text, so an editor cannot show it: give --payload-file"))
	}
	shown, restore := d.forEditor()
	// The file has a folder of its own, with mode 0700, so that files that the editor makes beside it are private too, and are removed with
	// it.
	folder, err := os.MkdirTemp("", "oncebox-")
	if err != nil {
		return nil, fmt.Errorf("make a file for the editor: %w", err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "payload"+d.extension())
	for {
		if err := os.WriteFile(file, shown, 0o600); err != nil { //nolint:gosec // in the folder that was made above
			return nil, fmt.Errorf("make a file for the editor: %w", err)
		}
		// The exit code of the editor counts: ":cq" in vi is the way to say that nothing shall be done.
		if err := runEditor(ctx, s, program, file); err != nil {
			return nil, fmt.Errorf("the editor %q: %w; nothing was done", program, err)
		}
		// shown becomes the edited text, so the next round goes on from it and a typing error does not cost
		// the whole edit.
		if shown, err = os.ReadFile(file); err != nil { //nolint:gosec // the file that was made above
			return nil, fmt.Errorf("read what the editor has written: %w", err)
		}
		payload := restore(shown)
		wrong := d.check(s.Program, payload)
		if wrong == nil {
			return payload, nil
		}
		s.Complain(cli.Printable(wrong.Error()))
		if err := s.Confirm(false, "edit it again?"); err != nil {
			return nil, cli.Exit(cli.ExitRefused, fmt.Errorf("%w; nothing was done", wrong))
		}
	}
}

// runEditor runs the editor in a shell, because the variable may contain options.
func runEditor(ctx context.Context, s *cli.Session, program, file string) error {
	// The file is an argument and not part of the text for the shell, so its name needs no quoting.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", program+` "$1"`, "oncebox", file) //nolint:gosec // the operator's own editor
	// The editor draws on stderr, because stdout may be a pipe that expects JSON.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Errs, s.Errs
	return cmd.Run()
}

// forEditor returns the payload in the form for the editor, and a function that turns the edited text back into a
// payload. Without a change the result is the payload byte for byte, so check can detect that nothing was changed.
func (d *editable) forEditor() (shown []byte, restore func([]byte) []byte) {
	var pretty, line bytes.Buffer
	// JSON that has spaces or lines of its own is shown as it is: compacting it afterwards would change
	// bytes that nobody edited.
	if d.isJSON() && json.Compact(&line, d.payload) == nil && bytes.Equal(line.Bytes(), d.payload) && json.Indent(&pretty, d.payload, "", "  ") == nil {
		pretty.WriteByte('\n')
		return pretty.Bytes(), func(text []byte) []byte {
			var line bytes.Buffer
			// Invalid JSON is returned as it is, so that check reports where the mistake is.
			if json.Compact(&line, text) != nil {
				return text
			}
			return line.Bytes()
		}
	}
	if bytes.HasSuffix(d.payload, []byte("\n")) {
		return d.payload, func(text []byte) []byte { return text }
	}
	return d.payload, func(text []byte) []byte { return bytes.TrimSuffix(text, []byte("\n")) } // editors add a line break at the end
}

// extension returns the file extension by which editors recognize the format.
func (d *editable) extension() string {
	if d.isJSON() {
		return ".json"
	}
	return ".txt"
}
