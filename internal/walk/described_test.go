package walk

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

const page = "# Page\n\n## The way of one event\n\nHead.\n\n### A\n\n1. `uow/a.go Do`: it begins.\n2. `uow/b.go end`: it\n   ends.\n" +
	"\n### B\n\n1. `projector/c.go step`: it steps.\n\n### C\n\n1. `inbox/d.go Handle`: it handles.\n\n## Next\n\n1. `x/y.go z`: it is no stop.\n"

func TestDescribed(t *testing.T) {
	way, err := Described(page)
	require.NoError(t, err)
	require.Equal(t, Way{
		Write: []Stop{{File: "uow/a.go", Func: "Do"}, {File: "uow/b.go", Func: "end"}}, Relay: []Stop{{File: "projector/c.go", Func: "step"}},
		Receive: []Stop{{File: "inbox/d.go", Func: "Handle"}},
	}, way)
	_, err = Described(strings.Replace(page, "### C", "#### C", 1))
	require.ErrorContains(t, err, "has 2 parts")
}

func TestMissingStopsSayWhereTheyAre(t *testing.T) {
	way, err := Described(page)
	require.NoError(t, err)
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	module := fstest.MapFS{
		"uow/a.go": file("package uow\nfunc (m *Manager) Do() {}"), "uow/b_test.go": file("package uow\nfunc end() {}"),
		"inbox/e.go": file("package inbox\nfunc Handle() {}"), "uow/e.go": file("package uow\nfunc Handle() {}"),
		"projector/c.go": file("package projector\nfunc step() {}"),
	}
	mend, err := way.Missing(module)
	require.NoError(t, err)
	require.Len(t, mend, 2)
	require.Contains(t, mend[0], "`uow/b.go end`: no function has this name")
	require.Contains(t, mend[1], "`inbox/d.go Handle`: it is not there. If it has moved, write `inbox/e.go Handle` or `uow/e.go Handle`")
}

func TestStopsOutOfOrder(t *testing.T) {
	way, err := Described(page)
	require.NoError(t, err)
	recorded := Way{
		Write: []Stop{{"uow/b.go", "end", 3}, {"uow/a.go", "other", 3}, {"uow/a.go", "Do", 30}}, Relay: []Stop{{"projector/c.go", "step", 1}},
	}
	mend := way.OutOfOrder(recorded)
	require.Len(t, mend, 2)
	require.Contains(t, mend[0], "has `uow/b.go end` behind `uow/a.go Do`, and the events pass it before: move it up")
	require.Contains(t, mend[1], "names `inbox/d.go Handle`, which no event passes in the stretch receive")
	recorded.Write, recorded.Receive = []Stop{{"uow/a.go", "Do", 30}, {"uow/c.go", "x", 3}, {"uow/b.go", "end", 3}}, way.Receive
	require.Empty(t, way.OutOfOrder(recorded))
}
