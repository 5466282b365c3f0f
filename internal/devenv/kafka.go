package devenv

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// KafkaServer is a running broker of Apache Kafka.
type KafkaServer struct {
	server

	// URL is the address for clients without encryption and password, host:port.
	URL string
	// Listeners are the addresses of the listeners that KafkaSettings names.
	Listeners map[string]string

	controller string // its address for the other controllers
}

// KafkaCluster is a running cluster.
type KafkaCluster struct {
	// Nodes are the brokers, by their number less one.
	Nodes []*KafkaServer
	// URL has the addresses of all brokers, separated by commas.
	URL string
}

// KafkaSettings say how a cluster differs from one broker without a password.
type KafkaSettings struct {
	// Nodes is the number of brokers. Each is a controller, too. From three on, topics have three copies by default, and min.insync.replicas is 2.
	// Default: 1.
	Nodes int
	// Listeners are further listeners, each named as its security protocol: SASL_PLAINTEXT, SASL_SSL, SSL.
	Listeners []string
	// Lines are further lines of the configuration of each broker, for example with the users of the listeners.
	Lines []string
}

const (
	kafkaVersion = "4.1.0"
	// kafkaProject is a project of Maven that has Kafka's server, its tools and a log as dependencies: there is no distribution in Maven's repository.
	kafkaProject = `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>oncebox</groupId><artifactId>kafka</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>` + kafkaVersion + `</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>` + kafkaVersion + `</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>2.0.17</version></dependency>
</dependencies></project>
`
	mavenCopyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
)

// Kafka finds the Kafka of KAFKA_URL, or starts one broker that is its own controller (KRaft). The caller stops it.
func Kafka(ctx context.Context, options *Options) (*KafkaServer, error) {
	opts := withDefaults(options)
	if address := os.Getenv("KAFKA_URL"); address != "" && !opts.Own {
		k := &KafkaServer{URL: address}
		if err := k.listens(ctx); err != nil {
			return nil, fmt.Errorf("devenv: the Kafka of KAFKA_URL does not answer; start it, or unset KAFKA_URL to have one started: %w", err)
		}
		opts.sayf("Kafka: KAFKA_URL, %s", k.URL)
		return k, nil
	}
	c, err := StartKafka(ctx, options, KafkaSettings{})
	if err != nil {
		return nil, err
	}
	return c.Nodes[0], nil
}

// StartKafka starts a cluster of its own (KRaft). The caller stops it.
func StartKafka(ctx context.Context, options *Options, settings KafkaSettings) (_ *KafkaCluster, err error) {
	opts := withDefaults(options)
	java, err := provideJava(ctx, opts)
	if err != nil {
		return nil, err
	}
	home, err := fetchKafka(ctx, opts)
	if err != nil {
		return nil, err
	}
	c := &KafkaCluster{}
	var urls, voters []string
	for range max(settings.Nodes, 1) {
		k, err := newKafkaServer(opts, settings.Listeners)
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.Nodes = append(c.Nodes, k)
		urls, voters = append(urls, k.URL), append(voters, strconv.Itoa(len(c.Nodes))+"@"+k.controller)
	}
	c.URL = strings.Join(urls, ",")
	// A broker answers only when most controllers run.
	var starting errgroup.Group
	for n, k := range c.Nodes {
		lines := append(k.settings(n+1, voters), settings.Lines...)
		starting.Go(func() error { return k.serve(ctx, home, filepath.Join(java, "bin", "java"), lines) })
	}
	if err := starting.Wait(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	opts.sayf("Kafka: libraries %s, %s", home, c.URL)
	return c, nil
}

// Stop ends all brokers and removes their data. A second call does nothing.
func (c *KafkaCluster) Stop() (err error) {
	for _, k := range c.Nodes {
		err = errors.Join(err, k.Stop())
	}
	return err
}

// newKafkaServer reserves a folder and ports.
func newKafkaServer(opts Options, listeners []string) (*KafkaServer, error) {
	k := &KafkaServer{server: server{name: "kafka", timeout: opts.StartTimeout}, Listeners: map[string]string{}}
	// The watchdog uses SIGKILL, because an orderly shutdown takes seconds and the data is removed anyway.
	if err := k.prepare("KILL"); err != nil {
		return nil, err
	}
	for _, name := range append([]string{"PLAINTEXT", "CONTROLLER"}, listeners...) {
		port, err := k.takePort()
		if err != nil {
			return nil, errors.Join(err, k.Stop())
		}
		k.Listeners[name] = "127.0.0.1:" + strconv.Itoa(port)
	}
	k.URL, k.controller = k.Listeners["PLAINTEXT"], k.Listeners["CONTROLLER"]
	return k, nil
}

// fetchKafka returns the folder with Kafka's libraries in the user's cache folder. The first call downloads them.
func fetchKafka(ctx context.Context, opts Options) (string, error) {
	return cached(ctx, "apache-kafka-"+kafkaVersion, opts, func(w *workshop) error {
		if err := provideMaven(ctx, w, opts, "Kafka"); err != nil {
			return err
		}
		opts.sayf("Kafka: not in the user's cache folder, fetching %s with Maven (54 MB, once)", kafkaVersion)
		pom := filepath.Join(w.folder, "pom.xml")
		if err := os.WriteFile(pom, []byte(kafkaProject), 0o600); err != nil {
			return fmt.Errorf("devenv: fetch Kafka: %w", err)
		}
		if err := w.maven(ctx, opts, "--file", pom, mavenCopyDependencies, "-DoutputDirectory="+filepath.Join(w.folder, unpacked)); err != nil {
			return fmt.Errorf("devenv: fetch Kafka: %w", err)
		}
		return nil
	})
}

// serve formats the folder for the data, and starts the broker.
func (k *KafkaServer) serve(ctx context.Context, home, java string, lines []string) error {
	conf := filepath.Join(k.folder, "server.properties")
	if err := os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("devenv: write Kafka's configuration: %w", err)
	}
	program := func(class string, args ...string) *exec.Cmd {
		cmd := exec.Command(java, append([]string{
			"-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", // optimized code takes long to compile, and tests end before it pays
			"-Djava.io.tmpdir=" + k.folder, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(home, "*"), class,
		}, args...)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + k.folder}
		return cmd
	}
	err := k.run(ctx, program("kafka.tools.StorageTool", "format", "--cluster-id", "b25jZWJveC10ZXN0cy0xMA", "--config", conf))
	if err != nil {
		return err
	}
	k.command = func() *exec.Cmd { return program("kafka.Kafka", conf) }
	k.ready = k.listens
	return k.start(ctx)
}

// settings returns the lines of the configuration. A group is not to wait for consumers that do not come.
func (k *KafkaServer) settings(number int, voters []string) []string {
	copies := strconv.Itoa(min(len(voters), 3))
	inSync := strconv.Itoa(max(min(len(voters), 3)-1, 1))
	protocols := []string{"CONTROLLER:PLAINTEXT"}
	var listeners, advertised []string
	for name, address := range k.Listeners {
		listeners = append(listeners, name+"://"+address)
		if name != "CONTROLLER" {
			advertised, protocols = append(advertised, name+"://"+address), append(protocols, name+":"+name)
		}
	}
	return []string{
		"process.roles=broker,controller", "node.id=" + strconv.Itoa(number),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"listeners=" + strings.Join(listeners, ","), "advertised.listeners=" + strings.Join(advertised, ","),
		"controller.listener.names=CONTROLLER", "inter.broker.listener.name=PLAINTEXT",
		"listener.security.protocol.map=" + strings.Join(protocols, ","),
		"log.dirs=" + filepath.Join(k.folder, "data"),
		"default.replication.factor=" + copies, "min.insync.replicas=" + inSync,
		"offsets.topic.replication.factor=" + copies, "offsets.topic.num.partitions=4",
		"transaction.state.log.replication.factor=" + copies, "transaction.state.log.min.isr=" + inSync,
		"share.coordinator.state.topic.replication.factor=" + copies, "share.coordinator.state.topic.min.isr=" + inSync,
		"group.initial.rebalance.delay.ms=0", "group.min.session.timeout.ms=1000", "auto.create.topics.enable=false",
	}
}

// listens returns nil if the broker accepts connections, which it does once it has joined its cluster.
func (k *KafkaServer) listens(ctx context.Context) error {
	first, _, _ := strings.Cut(k.URL, ",")
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", first)
	if err != nil {
		return err
	}
	return conn.Close()
}
