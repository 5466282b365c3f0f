package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// readImage reads the file of an image as a container engine would: it checks all digests, unpacks the image of each platform, and runs the program
// of this machine's platform. It returns in words what ran.
func (r *rehearsal) readImage(ctx context.Context, c *command, file string) (ran string, err error) {
	dir := filepath.Join(r.scratch, "read", c.name)
	if err := unpack(file, dir); err != nil {
		return "", err
	}
	if err := checkBlobs(filepath.Join(dir, "blobs", "sha256")); err != nil {
		return "", err
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("it has %d entries, and not one index", len(manifest.Manifests))
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		return "", err
	}
	if err := validate.Index(index); err != nil {
		return "", err
	}
	images, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	ran = "none of them can run on this machine"
	for _, m := range images.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return "", err
		}
		program, err := r.unpackImage(image, filepath.Join(r.scratch, "unpacked", c.name, m.Platform.Architecture))
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Platform, err)
		}
		if (platform{m.Platform.OS, m.Platform.Architecture}).here() {
			if err := r.showsVersion(ctx, c, program); err != nil {
				return "", err
			}
			ran = m.Platform.String() + " read back and run"
		}
	}
	return ran, nil
}

// checkBlobs compares each part of an image with the digest that is its name. A container engine refuses a part that differs.
func checkBlobs(dir string) error {
	blobs, err := filesBelow(dir)
	if err != nil {
		return err
	}
	for _, b := range blobs {
		if sum := fmt.Sprintf("%x", sha256.Sum256(b.text)); sum != b.name {
			return fmt.Errorf("the part sha256:%s has the digest sha256:%s", b.name, sum)
		}
	}
	return nil
}

// unpackImage unpacks an image, checks what a container would get, and returns the file of its program.
func (r *rehearsal) unpackImage(image v1.Image, dir string) (program string, err error) {
	config, err := image.ConfigFile()
	if err != nil {
		return "", err
	}
	if user, _, _ := strings.Cut(config.Config.User, ":"); user == "" || user == "0" || user == "root" {
		return "", errors.New("it runs as root")
	}
	if len(config.Config.Entrypoint) == 0 {
		return "", errors.New("it has no entrypoint")
	}
	files := mutate.Extract(image)
	if err := errors.Join(unpackTar(files, dir), files.Close()); err != nil {
		return "", err
	}
	roots, err := os.ReadFile(filepath.Join(dir, certificatesFile))
	if err != nil {
		return "", err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(roots) {
		return "", errors.New("it has no root certificates, so it could make no TLS connection")
	}
	if _, err := os.Stat(filepath.Join(dir, "licenses", thirdParty)); err != nil {
		return "", err
	}
	return filepath.Join(dir, config.Config.Entrypoint[0]), nil
}

func unpack(file, dir string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return unpackTar(bytes.NewReader(text), dir)
}

// unpackTar writes the files of a tar file below dir, which it makes. No file can be outside.
func unpackTar(from io.Reader, dir string) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(h.Name)
		if h.Typeflag == tar.TypeDir {
			if err := root.MkdirAll(name, 0o700); err != nil {
				return err
			}
			continue
		}
		text, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			return err
		}
		if err := root.WriteFile(name, text, h.FileInfo().Mode().Perm()); err != nil {
			return err
		}
	}
}
