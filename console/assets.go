package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
)

//go:embed assets templates
var files embed.FS

const (
	stylesheet = "console.css"
	icon       = "icon.svg"
)

// asset is a file that the pages refer to, by a name with its hash: browsers keep it until it changes.
type asset struct {
	kind, hash string
	data       []byte
}

func readAssets() (map[string]asset, error) {
	all := map[string]asset{}
	for name, kind := range map[string]string{stylesheet: "text/css; charset=utf-8", icon: "image/svg+xml"} {
		data, err := files.ReadFile("assets/" + name)
		if err != nil {
			return nil, fmt.Errorf("read an embedded file: %w", err)
		}
		sum := sha256.Sum256(data)
		all[name] = asset{kind, hex.EncodeToString(sum[:8]), data}
	}
	return all, nil
}

func (c *Console) assetHref(name string) string { return name + "?v=" + c.assets[name].hash }

func (c *Console) asset(v *visit) error {
	a := c.assets[v.name]
	v.w.Header().Set("Content-Type", a.kind)
	if v.URL.Query().Get("v") == a.hash {
		v.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	v.w.WriteHeader(http.StatusOK)
	_, _ = v.w.Write(a.data)
	return nil
}
