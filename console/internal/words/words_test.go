package words_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/console/internal/words"
)

const nbsp = "\u00a0"

func TestTimes(t *testing.T) {
	now := time.Date(2026, 11, 27, 2, 14, 44, 123_456_789, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "now", 40 * time.Second: "overdue by 40" + nbsp + "s", 106 * time.Second: "overdue by 1" + nbsp + "min" + nbsp + "46" + nbsp + "s",
		-time.Minute: "in 1" + nbsp + "min",
	} {
		require.Equal(t, want, words.Due(now, now.Add(-d)))
	}
	for d, want := range map[time.Duration]string{
		0: "0" + nbsp + "ms", 1_499_999: "1" + nbsp + "ms", 999_600 * time.Microsecond: "1.000" + nbsp + "s", 12_345 * time.Millisecond: "12.345" + nbsp + "s",
		90 * time.Second: "1" + nbsp + "min" + nbsp + "30" + nbsp + "s", -7 * time.Millisecond: "−7" + nbsp + "ms",
	} {
		require.Equal(t, want, words.Later(d))
	}
	require.Equal(t, "02:14:44.123", words.Clock(now.In(time.FixedZone("", 3600))))
	require.Equal(t, "02:13", words.Since(now, now.Add(-time.Minute).In(time.FixedZone("", 3600))))
	require.Equal(t, "02:14:40", words.Since(now, now.Add(-4*time.Second).In(time.FixedZone("", 3600))), "a minute is too coarse")
	require.Equal(t, "2026-11-26 23:14", words.Since(now, now.Add(-3*time.Hour)))
	require.Empty(t, words.Stamp(time.Time{}))
}

func TestNamesEndALineBetweenTheirParts(t *testing.T) {
	for name, want := range map[string]string{
		"reservation.expired": "reservation.<wbr>expired", "order": "order", "": "", "a.": "a.", "<b>.c-d": "&lt;b&gt;.<wbr>c-<wbr>d",
	} {
		require.EqualValues(t, want, words.Name(name))
	}
}

func TestNumbers(t *testing.T) {
	require.Equal(t, "1\u202f234\u202f567", words.Group(1_234_567))
	require.Equal(t, "-100", words.Group(-100))
	require.Equal(t, "1\u202f000+", words.UpTo(1000, 1000))
	require.Equal(t, "äöü…", words.Shorten(4, "äöüäöü"))
}
