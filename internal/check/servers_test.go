package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
)

func TestKeeperIsReadUntilTheServersAreUp(t *testing.T) {
	out, keeper := io.Pipe()
	t.Cleanup(func() { _ = keeper.Close() })
	said := make(chan string, 1)
	go func() { said <- untilUp(out) }()
	_, err := io.WriteString(keeper, "PostgreSQL: found\n"+isUp+"\n") // and the pipe stays open
	require.NoError(t, err)
	require.Equal(t, isUp, await.Receive(t, said, "the servers are up"))
	require.Equal(t, "no room", untilUp(strings.NewReader("PostgreSQL: found\nno room\n")))
}
