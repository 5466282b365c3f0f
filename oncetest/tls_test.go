package oncetest_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/internal/await"
	"github.com/oncebox/oncebox/internal/pgtest"
)

// withTLS makes a server accept TLS, and returns its address for clients that insist on it.
func withTLS(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)

	server := pgtest.Start(t, nil)
	db := server.Open(t)
	var folder string
	require.NoError(t, db.NewRaw("SHOW data_directory").Scan(t.Context(), &folder))
	for name, block := range map[string]*pem.Block{
		"server.key": {Type: "PRIVATE KEY", Bytes: private}, "server.crt": {Type: "CERTIFICATE", Bytes: certificate},
	} {
		// The server writes the files, as it has to own them.
		file := filepath.Join(folder, name)
		_, err := db.NewRaw("DO ?", fmt.Sprintf(`BEGIN EXECUTE format('COPY (SELECT unnest(string_to_array(%%L, E''\n''))) TO %%L', '%s', '%s'); END`,
			strings.TrimSpace(string(pem.EncodeToMemory(block))), file)).Exec(t.Context())
		require.NoError(t, err)
		require.NoError(t, os.Chmod(file, 0o600))
	}
	_, err = db.Exec("ALTER SYSTEM SET ssl = on")
	require.NoError(t, err)
	_, err = db.Exec("SELECT pg_reload_conf()")
	require.NoError(t, err)
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	query := u.Query()
	query.Set("sslmode", "require")
	query.Set("channel_binding", "require")
	u.RawQuery = query.Encode()
	await.True(t, func() bool {
		conn, err := pgx.Connect(t.Context(), u.String())
		return err == nil && conn.Close(t.Context()) == nil
	}, "the server to read its settings")
	return u.String()
}

// A crash is seen within what TLS carries.
func TestCrashBehindTLS(t *testing.T) {
	t.Parallel()
	test := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCrashOfARequest$")
	test.Env = append(os.Environ(), "ONCEBOX_DATABASE_URL="+withTLS(t))
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
