package devenv

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// browserVariable is the variable with the path of a browser.
const browserVariable = "CHROME_PATH"

// Browser returns the path of Chromium, or of a browser that is built on it: that of CHROME_PATH, else an installed one, else the package
// chromium, which is installed with apt-get if possible. The error says what a person has to do.
func Browser(ctx context.Context, options *Options) (string, error) {
	opts := withDefaults(options)
	if named := os.Getenv(browserVariable); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("devenv: %s names %s, which is no program: %w", browserVariable, named, err)
		}
		return path, nil
	}
	if path := findBrowser(); path != "" {
		return path, nil
	}
	err := locked(ctx, "chromium", opts, func(w *workshop) error {
		if findBrowser() != "" {
			return nil // another process has installed it meanwhile
		}
		return install(ctx, w, opts, tool{
			user: "The test of the console", name: "Chromium", packages: []string{"chromium"},
			hint: "or set " + browserVariable + " to the program of a Chrome",
		})
	})
	if err != nil {
		return "", err
	}
	path := findBrowser()
	if path == "" {
		return "", fmt.Errorf("devenv: apt-get installed chromium, and there is no program of that name: set %s", browserVariable)
	}
	return path, nil
}

// findBrowser returns the path of an installed browser, "" if there is none.
func findBrowser() string {
	for _, name := range []string{
		"chromium", "google-chrome", "google-chrome-stable", "chromium-browser", "chrome",
		"/Applications/Google Chrome.app/Contents/MacOS/Google Chrome", "/Applications/Chromium.app/Contents/MacOS/Chromium",
	} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}
