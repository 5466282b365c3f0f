package serve_test

import (
	"net"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/serve"
)

// A service with its defaults runs beside the servers of compose.yaml, which says where they are.
func TestServersOfComposeLeaveThePortOfAService(t *testing.T) {
	text, err := os.ReadFile("../compose.yaml")
	require.NoError(t, err)
	defaults := (*serve.Config)(nil).WithDefaults()
	_, own, err := net.SplitHostPort(defaults.Addr)
	require.NoError(t, err)
	published := regexp.MustCompile(`"127\.0\.0\.1:(\d+):\d+"`).FindAllSubmatch(text, -1)
	require.Len(t, published, 3)
	page, err := os.ReadFile("../docs/two-services.md")
	require.NoError(t, err)
	for _, port := range published {
		require.NotEqual(t, own, string(port[1]))
		for _, where := range [][]byte{text, page} {
			require.Regexp(t, `export .*://[^ ]*127\.0\.0\.1:`+string(port[1]), string(where), "whoever uses the servers is told")
		}
	}
}
