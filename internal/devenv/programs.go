package devenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// findPrograms returns the folder of the newest initdb and postgres on this machine that the user can run.
func findPrograms(ctx context.Context, as *account) (string, error) {
	folders, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", fmt.Errorf("devenv: look for PostgreSQL: %w", err)
	}
	folders = append(folders, filepath.SplitList(os.Getenv("PATH"))...)
	newest, found := 0, ""
	for _, folder := range folders {
		// A link in PATH may lead to a folder of wrappers. The programs find their library beside their real place.
		program, err := filepath.EvalSymlinks(filepath.Join(folder, "postgres"))
		if err != nil {
			continue
		}
		folder = filepath.Dir(program)
		if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil || !as.reaches(folder) {
			continue
		}
		if major := majorVersion(ctx, program); major >= oldestPostgres && major > newest {
			newest, found = major, folder
		}
	}
	if found == "" {
		return "", errNoPrograms
	}
	return found, nil
}

// majorVersion returns 15 for "postgres (PostgreSQL) 15.13 (Debian 15.13-1)", and 0 for any other text.
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

// fetchPrograms returns the folder with PostgreSQL's programs in the user's cache folder. The first call
// downloads them.
func fetchPrograms(ctx context.Context, opts Options) (string, error) {
	home, err := cached(ctx, "postgresql-"+embeddedVersion, opts, func(w *workshop) error {
		opts.sayf("PostgreSQL: none on this machine, fetching %s (about 15 MB, once)", embeddedVersion)
		return unpackPostgres(ctx, w.folder, opts)
	})
	if err != nil {
		return "", fmt.Errorf("%w; or install PostgreSQL (apt-get install postgresql), or set DATABASE_URL", err)
	}
	return filepath.Join(home, "bin"), nil
}

var errNotDone = errors.New("not done")

// whileItRuns waits for the end of a download, and prints a dot each second on a terminal. It returns the error of the
// download, or errNotDone if FetchTimeout or ctx ended first.
func (o Options) whileItRuns(ctx context.Context, ended <-chan error) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	terminal, limit := o.terminal(), time.After(o.FetchTimeout)
	if terminal != nil {
		defer fmt.Fprintln(terminal)
	}
	for {
		select {
		case err := <-ended:
			return err
		case <-second.C:
			if terminal != nil {
				fmt.Fprint(terminal, ".")
			}
		case <-limit:
			return fmt.Errorf("%w after %s", errNotDone, o.FetchTimeout)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNotDone, ctx.Err())
		}
	}
}

// unpackPostgres downloads PostgreSQL and unpacks it into the folder's subfolder "unpacked".
//
// The library does that only as a part of Start, which also runs the server, as this user and in the background. So
// Start gets an empty data folder that looks initialized: it unpacks the programs and then fails to start. Its error is
// ignored if the programs are there.
func unpackPostgres(ctx context.Context, folder string, opts Options) error {
	data := filepath.Join(folder, "no-data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("devenv: prepare the unpacking of PostgreSQL: %w", err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(embeddedVersion), 0o600); err != nil {
		return fmt.Errorf("devenv: prepare the unpacking of PostgreSQL: %w", err)
	}
	port, err := takePort()
	if err != nil {
		return err
	}
	defer port.release()
	programs := filepath.Join(folder, unpacked)
	library := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.V17).Port(uint32(port.number)).Logger(io.Discard).CachePath(folder).
		BinariesPath(programs).RuntimePath(filepath.Join(folder, "run")).DataPath(data))
	// The library leaves connections of the default client open.
	defer http.DefaultClient.CloseIdleConnections()
	started := make(chan error, 1)
	go func() { started <- library.Start() }()
	if err = opts.whileItRuns(ctx, started); errors.Is(err, errNotDone) {
		return fmt.Errorf("devenv: fetch PostgreSQL %s: %w", embeddedVersion, err)
	}
	for _, program := range []string{"initdb", "postgres"} {
		if _, missing := os.Stat(filepath.Join(programs, "bin", program)); missing != nil {
			return fmt.Errorf("devenv: fetch PostgreSQL %s: %w", embeddedVersion, err)
		}
	}
	return nil
}
