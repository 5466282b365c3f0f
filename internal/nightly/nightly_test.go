package nightly_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/oncebox/oncebox/internal/nightly"
)

func collect(t *testing.T, few, many int) (all []uint64) {
	t.Helper()
	for seed := range nightly.Seeds(t, few, many) {
		all = append(all, seed)
	}
	return all
}

func TestSeeds(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("NIGHTLY_SEED", "77")
	first := collect(t, 3, 5)
	require.Len(t, first, nightly.N(3, 5))
	require.Equal(t, first, collect(t, 3, 5), "the seed of the run decides them")
	t.Setenv("NIGHTLY_SEED", "78")
	if nightly.On {
		require.NotEqual(t, first, collect(t, 3, 5))
	} else {
		require.Equal(t, []uint64{1, 2, 3}, collect(t, 3, 5), "make test draws nothing")
	}
}

func TestSeedsThatFailedOnceComeFirst(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("testdata/seeds", 0o755))
	require.NoError(t, os.WriteFile(filepath.Join("testdata/seeds", t.Name()), []byte("18446744073709551615 two relays\n9\n"), 0o600))
	require.Equal(t, []uint64{1<<64 - 1, 9}, collect(t, 1, 1)[:2])
	require.Len(t, collect(t, 1, 1), 3)
	t.Run("and not those of another test", func(t *testing.T) { require.Len(t, collect(t, 1, 1), 1) })
}

func TestSeedOfTheEnvironmentIsTheOnlyOne(t *testing.T) {
	t.Setenv("SEED", "42")
	require.Equal(t, []uint64{42}, collect(t, 3, 5))
}

func TestLoopMayEndEarly(t *testing.T) {
	rounds := 0
	for range nightly.Seeds(t, 3, 3) {
		if rounds++; rounds == 2 {
			break
		}
	}
	require.Equal(t, 2, rounds)
}

func TestCheckDrawsTheSameInMakeTest(t *testing.T) {
	t.Setenv("NIGHTLY_SEED", "5")
	drawn := func() (all []int) {
		nightly.Check(t, 10, 20, func(t *rapid.T) { all = append(all, rapid.Int().Draw(t, "n")) })
		return all
	}
	first := drawn()
	require.Len(t, first, nightly.N(10, 20))
	require.True(t, slices.Equal(first, drawn()))
}

const badSeed = "NIGHTLY_TEST_BAD"

// TestBadRound fails in the round that TestFailedSeedIsSaid asks it to, and else has nothing to do.
func TestBadRound(t *testing.T) {
	bad := os.Getenv(badSeed)
	round := 0
	for range nightly.Seeds(t, 3, 3) {
		if round++; strconv.Itoa(round) == bad {
			t.FailNow()
		}
	}
}

func TestFailedSeedIsSaid(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^TestBadRound$")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), badSeed+"=2", "NIGHTLY_SEED=77")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	said := regexp.MustCompile(`the seed is (\d+): in this package's folder, SEED=(\d+) go test (-tags nightly )?-run '\^TestBadRound\$' runs it again`).
		FindStringSubmatch(string(out))
	require.Len(t, said, 4, "%s", out)
	require.Equal(t, said[1], said[2])
	require.Equal(t, nightly.On, said[3] != "", "the size is the same again")
	kept, err := os.ReadFile(filepath.Join(cmd.Dir, "testdata/seeds/TestBadRound"))
	if !nightly.On {
		require.ErrorIs(t, err, os.ErrNotExist)
		require.Equal(t, "2", said[1])
		return
	}
	require.NoError(t, err)
	require.Equal(t, said[1]+"\n", string(kept))

	again := exec.Command(os.Args[0], "-test.run", "^TestBadRound$")
	again.Dir, again.Env = cmd.Dir, append(os.Environ(), badSeed+"=1", "NIGHTLY_SEED=77") // the seed that was written down
	out, err = again.CombinedOutput()
	require.Error(t, err, "%s", out)
	kept, err = os.ReadFile(filepath.Join(cmd.Dir, "testdata/seeds/TestBadRound"))
	require.NoError(t, err)
	require.Equal(t, said[1]+"\n", string(kept), "once")
}
