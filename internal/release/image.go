package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	specs "github.com/opencontainers/image-spec/specs-go/v1"
)

// buildImages writes an image of each command.
func (r *rehearsal) buildImages(ctx context.Context) (string, error) {
	var said []string
	for _, c := range r.commands {
		digest, ran, err := r.buildImage(ctx, c)
		if err != nil {
			return "", err
		}
		r.made.images = append(r.made.images, digest)
		said = append(said, fmt.Sprintf("%s %s: %s", c.name, digest, ran))
	}
	return strings.Join(said, "\n      "), nil
}

// buildImage writes an OCI image for each platform of Linux, in one index, as a tar file with an image layout, and reads it back. No container engine
// is needed. What the image has is in the folder dist: the binary and the licences, and besides only certificates and a user.
func (r *rehearsal) buildImage(ctx context.Context, c *command) (digest, said string, err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	count := 0
	for _, b := range r.made.binaries {
		if b.command != c || b.platform.os != "linux" {
			continue
		}
		image, err := r.imageOf(b)
		if err != nil {
			return "", "", err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: b.platform.os, Architecture: b.platform.arch},
		}})
		count++
	}
	annotated, ok := mutate.Annotations(index, r.labels(c)).(v1.ImageIndex)
	if !ok {
		return "", "", fmt.Errorf("an index with annotations is a %T", annotated)
	}
	hash, err := annotated.Digest()
	if err != nil {
		return "", "", err
	}
	file, err := r.writeLayout(c, annotated)
	if err != nil {
		return "", "", err
	}
	ran, err := r.readImage(ctx, c, file)
	if err != nil {
		return "", "", fmt.Errorf("%s, read back: %w", filepath.Base(file), err)
	}
	return hash.String(), fmt.Sprintf("%d platforms, %s", count, ran), nil
}

// labels say what the image is: https://github.com/opencontainers/image-spec/blob/main/annotations.md.
func (r *rehearsal) labels(c *command) map[string]string {
	hash := ""
	for _, s := range r.made.binaries[0].info.Settings {
		if s.Key == "vcs.revision" {
			hash = s.Value
		}
	}
	return map[string]string{
		specs.AnnotationTitle: c.name, specs.AnnotationVersion: r.version, specs.AnnotationRevision: hash,
		specs.AnnotationSource:   "https://" + r.root().path(),
		specs.AnnotationCreated:  r.when.Format("2006-01-02T15:04:05Z"),
		specs.AnnotationLicenses: strings.Join(r.licensed(), " AND "),
	}
}

// licensed returns the licence of the product.
func (r *rehearsal) licensed() []string {
	text, err := os.ReadFile(filepath.Join(r.clone.dir, "LICENSE"))
	if err != nil {
		return nil // the step that reads the zips reports it
	}
	return kindsOf(text)
}

// imageOf makes the image of a binary for Linux: on nothing, with one layer that changes rarely, and one with the binary.
func (r *rehearsal) imageOf(b *binary) (v1.Image, error) {
	program, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	licences, err := os.ReadFile(filepath.Join(r.dist, thirdParty))
	if err != nil {
		return nil, err
	}
	base, err := layer(append(baseFiles(), imageFile{"licenses/" + thirdParty, 0o444, licences}), r.when)
	if err != nil {
		return nil, err
	}
	top, err := layer([]imageFile{{b.command.name, 0o555, program}}, r.when)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: base, History: v1.History{Created: v1.Time{Time: r.when}, CreatedBy: "certificates, a user, licences"}},
		mutate.Addendum{Layer: top, History: v1.History{Created: v1.Time{Time: r.when}, CreatedBy: b.command.dir()}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = b.platform.os, b.platform.arch, v1.Time{Time: r.when}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + b.command.name}, User: nobody + ":" + nobody, WorkingDir: "/", Labels: r.labels(b.command),
		Env: []string{"PATH=/", "SSL_CERT_FILE=/" + certificatesFile},
	}
	return mutate.ConfigFile(image, config)
}

// writeLayout writes an index as a tar file with an image layout. The index is the only entry of the layout and has the version as its name, as
// other tools write and expect it.
func (r *rehearsal) writeLayout(c *command, index v1.ImageIndex) (file string, err error) {
	dir := filepath.Join(r.scratch, "layout", c.name)
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{specs.AnnotationRefName: r.version})); err != nil {
		return "", err
	}
	file = filepath.Join(r.dist, fmt.Sprintf("%s_%s_image.tar", c.name, r.version))
	files, err := filesBelow(dir)
	if err != nil {
		return "", err
	}
	slices.SortFunc(files, func(a, b imageFile) int { return strings.Compare(a.name, b.name) })
	text, err := archive(files, r.when)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o644)
}
