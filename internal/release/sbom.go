package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// listBinaries writes beside each binary which modules it is made of, as CycloneDX 1.6 in JSON, and reads the file back.
func (r *rehearsal) listBinaries(context.Context) (string, error) {
	components := 0
	for _, b := range r.made.binaries {
		name := b.file + ".cdx.json"
		if err := r.writeList(b, name); err != nil {
			return "", err
		}
		count, err := checkList(b, name)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		components = max(components, count)
		r.made.sboms++
	}
	return fmt.Sprintf("%d files with up to %d modules each", r.made.sboms, components), nil
}

// writeList writes the list of a binary. It has no serial number and no time of its making, so the same binary always has the same list.
func (r *rehearsal) writeList(b *binary, name string) (err error) {
	list := cyclonedx.NewBOM()
	main := cyclonedx.Component{
		BOMRef: purl(b.info.Main.Path, b.info.Main.Version), Type: cyclonedx.ComponentTypeApplication, Name: b.info.Main.Path, Version: b.info.Main.Version,
		PackageURL: purl(b.info.Main.Path, b.info.Main.Version),
	}
	list.Metadata = &cyclonedx.Metadata{Timestamp: r.when.Format(time.RFC3339), Component: &main}
	components := []cyclonedx.Component{{
		BOMRef: purl("std", b.info.GoVersion), Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: b.info.GoVersion,
		PackageURL: purl("std", b.info.GoVersion), Licenses: spdx(r.made.licences[goItself]),
	}}
	for _, m := range b.info.Deps {
		components = append(components, cyclonedx.Component{
			BOMRef: purl(m.Path, m.Version), Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version),
			Licenses: spdx(r.made.licences[m.Path]), Scope: cyclonedx.ScopeRequired,
			Properties: &[]cyclonedx.Property{{Name: "go:module:sum", Value: m.Sum}},
		})
	}
	list.Components = &components
	to, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return cyclonedx.NewBOMEncoder(to, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(list, cyclonedx.SpecVersion1_6)
}

// purl names a Go module: https://github.com/package-url/purl-spec/blob/main/types-doc/golang-definition.md.
func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

func spdx(l *licence) *cyclonedx.Licenses {
	if l == nil {
		return nil
	}
	var all cyclonedx.Licenses
	for _, kind := range l.kinds {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: kind}})
	}
	return &all
}

// checkList reads a list back. It must name each module that the binary names, and no other one.
func checkList(b *binary, name string) (count int, err error) {
	from, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var list cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(from, cyclonedx.BOMFileFormatJSON).Decode(&list); err != nil {
		return 0, err
	}
	if list.Components == nil {
		return 0, errors.New("it names no module")
	}
	named := map[string]bool{}
	for _, c := range *list.Components {
		named[c.Name+"@"+c.Version] = true
	}
	for _, m := range append([]string{"std@" + b.info.GoVersion}, modulesOf(b)...) {
		if !named[m] {
			return 0, fmt.Errorf("it does not name %s, which the binary contains", m)
		}
		delete(named, m)
	}
	if len(named) > 0 {
		return 0, fmt.Errorf("it names modules that the binary does not contain: %s", strings.Join(slices.Sorted(maps.Keys(named)), ", "))
	}
	return len(*list.Components), nil
}

func modulesOf(b *binary) (all []string) {
	for _, m := range b.info.Deps {
		all = append(all, m.Path+"@"+m.Version)
	}
	return all
}
