package eventtest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/oncebox/oncebox/event"
)

const (
	folder = "testdata/events"
	update = "EVENTTEST_UPDATE"
)

// Golden checks every type of the registry against the files in testdata/events, and reports each defect with t.Errorf. See the package
// documentation.
//
// For a type without a file it writes one, with a sample that has a value in every field. If no sample can be made, because a field is an interface
// or accepts only some values, give one in samples.
func Golden(t testing.TB, r *event.Registry, samples ...event.Event) {
	t.Helper()
	files, err := readFiles()
	if err != nil {
		t.Errorf("eventtest: read %s: %v", folder, err)
		return
	}
	g := &gate{TB: t, registry: r, files: files, samples: samples, update: os.Getenv(update) != ""}
	for _, s := range samples {
		if _, err := r.Encode(s); err != nil {
			t.Errorf("eventtest: the sample %T is of no use: %v", s, err)
		}
	}
	for _, f := range files {
		g.known(f)
	}
	for _, typ := range r.Types() {
		g.check(typ)
	}
}

type gate struct {
	testing.TB

	registry *event.Registry
	files    []file
	samples  []event.Event
	update   bool
}

// known reports an error for a file whose type or version this build does not know.
func (g *gate) known(f file) {
	g.Helper()
	if _, ok := g.registry.Name(f.name); !ok {
		g.Errorf("eventtest: %s: the type %q is not registered any more, and events of it are stored. If it was renamed, register "+
			"its successor with event.WithAliases(%q); else register it again. Delete its files when no such event is left anywhere.",
			f.path, f.name, f.name)
	}
}

// check checks all versions of a type, under its name and its aliases.
func (g *gate) check(typ event.Type) {
	g.Helper()
	for version := 1; version <= typ.Version; version++ {
		found := false
		for _, f := range g.files {
			if f.version != version || f.name != typ.Name && !slices.Contains(typ.Aliases, f.name) {
				continue
			}
			if f.name == typ.Name && version == typ.Version {
				g.current(typ, f)
				found = true
				continue
			}
			g.old(typ, f)
			found = found || version < typ.Version
		}
		switch {
		case found:
		case version < typ.Version:
			g.Errorf("eventtest: %s is gone. Events of version %d are stored and have to be understood: restore the file, or make it "+
				"from the payload of a stored event. An empty file says that there has never been one.", pathOf(typ, version), version)
		case g.update:
			g.write(typ, pathOf(typ, version), "a new version")
		default:
			g.Errorf("eventtest: %s is missing: %s has no sample of its version %d yet. Write it with %s=1 go test, and commit it.",
				pathOf(typ, version), typ.Name, version, update)
		}
	}
	for _, f := range g.files {
		if f.name == typ.Name && f.version > typ.Version {
			g.Errorf("eventtest: %s: the version of %s went back to %d. Events of version %d are stored: raise it again.",
				f.path, typ.Name, typ.Version, f.version)
		}
	}
}

// current checks that the type still writes what it reads from the file of its present version.
func (g *gate) current(typ event.Type, f file) {
	g.Helper()
	ev, err := g.registry.Decode(f.envelope())
	var now event.Envelope
	if err == nil {
		now, err = g.registry.Encode(ev)
	}
	if err != nil {
		g.changed(typ, f, "does not decode any more: "+err.Error())
		return
	}
	golden, written, isJSON := parse(f.payload, now.Payload)
	if !isJSON {
		if !bytes.Equal(f.payload, now.Payload) {
			g.changed(typ, f, fmt.Sprintf("is written in another way now: %q instead of %q", now.Payload, f.payload))
		}
		return
	}
	if gone := differences(golden, written, ""); len(gone) > 0 {
		g.changed(typ, f, strings.Join(gone, ", "))
		return
	}
	sample, ok := g.sample(typ)
	if !ok {
		return
	}
	full, _, _ := parse(sample, sample)
	fresh := slices.Concat(added(golden, full, ""), added(golden, written, ""))
	slices.Sort(fresh)
	switch fresh = slices.Compact(fresh); {
	case len(fresh) == 0:
	case g.update:
		g.write(typ, f.path, "with "+strings.Join(fresh, ", "))
	default:
		g.Errorf("eventtest: %s: new in %s: %s. Readers ignore what they do not know, so the version may stay. Put it into the file with %s=1 "+
			"go test, and commit it.", f.path, typ.Name, strings.Join(fresh, ", "), update)
	}
}

func (g *gate) changed(typ event.Type, f file, what string) {
	g.Helper()
	next := typ.Version + 1
	g.Errorf("eventtest: %s: %s version %d was changed: %s. Events of this version are stored and on their way. Undo the change, or "+
		"keep the file, raise the version to %d (event.WithVersion), turn the old form into the new one (event.WithUpcaster(%d, ...)), "+
		"and write the file of version %d with %s=1 go test.", f.path, typ.Name, typ.Version, what, next, typ.Version, next, update)
}

// old checks that events of an earlier version or name can still be read, with all their values.
func (g *gate) old(typ event.Type, f file) {
	g.Helper()
	if len(f.payload) == 0 {
		return
	}
	payload, err := g.registry.Upcast(f.envelope())
	var now event.Envelope
	if err == nil {
		var ev event.Event
		if ev, err = g.registry.Decode(f.envelope()); err == nil {
			now, err = g.registry.Encode(ev)
		}
	}
	if err != nil {
		g.Errorf("eventtest: %s: version %d is not understood any more: %v. Such events are stored: mend event.WithUpcaster(%d, ...) of %s.",
			f.path, f.version, err, f.version, typ.Name)
		return
	}
	if rounded := roundings(f.payload, payload); len(rounded) > 0 {
		g.Errorf("eventtest: %s: an upcaster of %s rounds %s: it reads numbers as float64, which ends at 2^53. Use a struct, or "+
			"json.Decoder.UseNumber.", f.path, typ.Name, strings.Join(rounded, ", "))
		return
	}
	upcast, written, isJSON := parse(payload, now.Payload)
	if !isJSON {
		return
	}
	if lost := lost(upcast, written); len(lost) > 0 {
		g.Errorf("eventtest: %s: on the way to version %d is lost: %s. Have event.WithUpcaster(%d, ...) of %s move it to where it "+
			"belongs now, or delete it.", f.path, typ.Version, strings.Join(lost, ", "), min(f.version, max(typ.Version-1, 1)), typ.Name)
	}
}

// sample returns the encoded sample of a type, and checks that its codec loses nothing of it.
func (g *gate) sample(typ event.Type) (payload []byte, ok bool) {
	g.Helper()
	var err error
	ev := g.given(typ)
	if ev == nil {
		ev, err = generate(typ.Go)
	}
	var first, second event.Envelope
	if err == nil {
		first, err = g.registry.Encode(ev)
	}
	if err == nil {
		ev, err = g.registry.Decode(&event.Envelope{Type: first.Type, SchemaVersion: first.SchemaVersion, Payload: first.Payload})
	}
	if err == nil {
		second, err = g.registry.Encode(ev)
	}
	if err == nil && !bytes.Equal(first.Payload, second.Payload) {
		err = fmt.Errorf("it reads %q and writes %q", first.Payload, second.Payload)
	}
	if err != nil {
		g.Errorf("eventtest: no sample of %s could be made: %v. Give one: eventtest.Golden(t, registry, %s{...}).",
			typ.Name, err, strings.Replace(typ.Go.String(), "*", "&", 1))
		return nil, false
	}
	return first.Payload, true
}

// given returns the caller's sample of the type, nil if there is none.
func (g *gate) given(typ event.Type) event.Event {
	for _, s := range g.samples {
		if enc, err := g.registry.Encode(s); err == nil && enc.Type == typ.Name {
			return s
		}
	}
	return nil
}

func (g *gate) write(typ event.Type, path, why string) {
	g.Helper()
	payload, ok := g.sample(typ)
	if !ok {
		return
	}
	if err := writeFile(path, payload); err != nil {
		g.Errorf("eventtest: write %s: %v", path, err)
		return
	}
	g.Logf("eventtest: wrote %s: %s. Commit it.", path, why)
}
