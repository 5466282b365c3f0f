package plot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/operator"
)

// noon is the present of these tests.
func noon() time.Time { return time.Date(2026, 11, 27, 12, 0, 30, 0, time.UTC) }

// wentOn returns a course over an hour, whose figures are those of minutes ago.
func wentOn(minutes map[int]operator.Figures) *Course {
	c := &Course{Span: SpanOf(""), Now: noon()}
	for ago := 60; ago >= 0; ago-- {
		if f, known := minutes[ago]; known {
			f.At, f.Span = noon().Add(-time.Duration(ago)*time.Minute).Truncate(time.Minute), time.Minute
			c.History.Figures = append(c.History.Figures, f)
		}
	}
	return c
}

// A line ends where nothing is known, and begins again behind it. Nothing connects the two ends.
func TestGapIsDrawnAsAGap(t *testing.T) {
	t.Parallel()
	p := wentOn(map[int]operator.Figures{3: {Waiting: 4}, 2: {Waiting: 2}, 0: {Waiting: 1}}).Plots()[0]
	require.Equal(t, 60, p.Columns())
	require.Equal(t, []Curve{{"", "M560 0H570V50H580M590 75H600"}}, p.Curves())
	areas := p.Areas()
	require.Equal(t, []Area{
		{X: 0, Width: 560, Gap: true, Title: "11:01 to 11:57: not known, no process read it"},
		{X: 560, Width: 10, Title: "11:57: 4 wait"},
		{X: 570, Width: 10, Title: "11:58: 2 wait"},
		{X: 580, Width: 10, Gap: true, Title: "11:59 to 12:00: not known, no process read it"},
		{X: 590, Width: 10, Title: "12:00: 1 wait"},
	}, areas)
	require.Equal(t, "Events waiting. wait: last 1, at most 4 at 11:57; not known for 1\u00a0min.", p.Text())
	require.Equal(t, []string{"4", "2", "0"}, p.Levels())
	require.Equal(t, []string{"11:01", "11:16", "11:31", "11:46", "12:01"}, p.Times())
}

// The minute that is not over yet may have no reading, which is no gap. The minute before it is one.
func TestTheMinuteThatIsNotOverIsNoGap(t *testing.T) {
	t.Parallel()
	last := func(minutes map[int]operator.Figures) Area {
		areas := wentOn(minutes).Plots()[0].Areas()
		return areas[len(areas)-1]
	}
	require.Equal(t, Area{X: 580, Width: 10, Title: "11:59: 2 wait"}, last(map[int]operator.Figures{1: {Waiting: 2}}))
	require.Equal(t, Area{X: 590, Width: 10, Title: "12:00: 2 wait"}, last(map[int]operator.Figures{0: {Waiting: 2}}))
	require.Equal(t, Area{X: 580, Width: 10, Gap: true, Title: "11:59 to 12:00: not known, no process read it"}, last(map[int]operator.Figures{2: {}}))
}

// What was read long ago is not shown as the present.
func TestLastNumberSaysFromWhenItIs(t *testing.T) {
	t.Parallel()
	p := wentOn(map[int]operator.Figures{20: {Waiting: 7}}).Plots()[0]
	require.Equal(t, []Figure{{"wait", "", "7 at 11:40", "7 at 11:40"}}, p.Figures())
	require.Contains(t, p.Text(), "not known for 20\u00a0min")
	empty := wentOn(nil).Plots()[0]
	require.False(t, empty.Known())
	require.Equal(t, []Figure{{"wait", "", "not known", "–"}}, empty.Figures())
	require.Equal(t, []string{"2", "1", "0"}, empty.Levels())
}

// A rate is what was counted over the time in which it was counted: half a minute of work is no slower than a whole one.
func TestRateIsOverTheTimeThatWasCounted(t *testing.T) {
	t.Parallel()
	p := wentOn(map[int]operator.Figures{
		2: {Came: 120, Went: 60, Counted: time.Minute}, 1: {Came: 60, Went: 0, Counted: 30 * time.Second}, 0: {},
	}).Plots()[2]
	require.InDelta(t, 2, p.Series[0].Values[57], 1e-9)
	require.InDelta(t, 2, p.Series[0].Values[58], 1e-9)
	require.False(t, p.known(59), "nothing was counted")
	require.Equal(t, "11:58: 2/s stored, 1/s published", p.Areas()[1].Title)
	require.Equal(t, []string{"2/s", "1/s", "0/s"}, p.Levels())
}

// The bars of a consumer are what it handled, and upon them what failed.
func TestBarsStandUponEachOther(t *testing.T) {
	t.Parallel()
	p := wentOn(map[int]operator.Figures{
		7: {Went: 30, Failed: 10, Counted: time.Minute}, 6: {Counted: time.Minute}, 0: {Went: 60, Counted: time.Minute},
	}).Spark("billing")
	require.Equal(t, 20, p.Columns())
	require.Equal(t, "billing. 90 handled; 10 failed; not known for 3\u00a0min.", p.Text())
	curves := p.Curves()
	require.Equal(t, "M161 100H169V70H161ZM191 100H199V40H191Z", curves[0].Path)
	require.Equal(t, Curve{"bad", "M161 70H169V60H161Z"}, curves[1])
	require.Contains(t, p.Areas()[1].Title, ": 30 handled, 10 failed")
}

// Ten minutes are one column of a day, whether they were read as minutes or have been merged.
func TestDayIsDrawnInTenMinutes(t *testing.T) {
	t.Parallel()
	c := &Course{Span: SpanOf("24h"), Now: noon()}
	at := func(hour, minute int, span time.Duration, waiting int64) operator.Figures {
		return operator.Figures{At: time.Date(2026, 11, 27, hour, minute, 0, 0, time.UTC), Span: span, Waiting: waiting, Dead: operator.Unknown}
	}
	c.History.Figures = []operator.Figures{at(9, 30, 10*time.Minute, 3), at(9, 40, time.Minute, 8), at(9, 41, time.Minute, 5)}
	p := c.Plots()[0]
	require.Equal(t, 144, p.Columns())
	require.Equal(t, []string{"09:30: 3 wait", "09:40: 8 wait"}, []string{p.Areas()[1].Title, p.Areas()[2].Title})
	require.Len(t, p.Areas(), 4, "and the gaps before and behind them")
	require.False(t, c.Plots()[1].Known(), "the age was not known")
	c.Span = SpanOf("")
	c.Now = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	require.True(t, c.Plots()[0].known(30), "merged minutes fill their columns")
}

// The bars have no axis, so a text says what a full bar is.
func TestBarsHaveAScale(t *testing.T) {
	t.Parallel()
	p := New("billing", "messages", time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC), time.Hour, 3*time.Minute)
	p.Bars = true
	p.Add("handled", "", 20).Values[3] = 300
	p.Add("failed", "bad", 20).Values[3] = 42
	require.Equal(t, "a full bar: 400 in 3\u00a0min", p.Scale())
}

// The ends of the axes are numbers that people use, at least as high as the highest one.
func TestAxes(t *testing.T) {
	t.Parallel()
	for highest, want := range map[float64]float64{0: 2, 2: 2, 3: 4, 5: 10, 11: 20, 399: 400, 1e6: 1e6} {
		require.InDelta(t, want, roundNumber(highest), 1e-9, "%v", highest)
	}
	for highest, want := range map[float64]float64{0: 2, 61: 120, 3601: 7200, 200000: 4 * 86400} {
		require.InDelta(t, want, roundSeconds(highest), 1e-9, "%v", highest)
	}
	for highest, want := range map[float64]float64{0.1: 0.2, 0.3: 1, 1.5: 2, 700: 1000} {
		require.InDelta(t, want, roundRate(highest), 1e-9, "%v", highest)
	}
	require.Equal(t, []string{"0/s", "3/min", "0.5/s", "12/s"}, []string{PerSecond(0), PerSecond(0.05), PerSecond(0.5), PerSecond(12.3)})
	require.Equal(t, []string{"0 s", "2\u00a0min"}, []string{inSeconds(0), inSeconds(120)})
}
