package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	"github.com/oncebox/oncebox/config"
	"github.com/oncebox/oncebox/serve"
)

// decode reads one manifest as the type that it says it is. An unknown field, a field that is there twice and a value of another type are
// errors.
func decode(text string) (object any, err error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &meta); err != nil {
		return nil, err
	}
	kinds := map[string]any{
		"apps/v1 Deployment": &appsv1.Deployment{}, "autoscaling/v2 HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
		"batch/v1 Job": &batchv1.Job{}, "policy/v1 PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "v1 Service": &corev1.Service{},
	}
	kind := meta.APIVersion + " " + meta.Kind
	object, known := kinds[kind]
	if !known {
		return nil, fmt.Errorf("%q is no kind that this test knows", kind)
	}
	return object, yaml.UnmarshalStrict([]byte(text), object)
}

// all returns the objects of all files, by type.
func all[T any](t *testing.T) map[string]*T {
	t.Helper()
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	out := map[string]*T{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for one := range strings.SplitSeq(string(text), "\n---\n") {
			object, err := decode(one)
			require.NoError(t, err, file)
			if typed, is := object.(*T); is {
				out[fmt.Sprint(file, " ", len(out))] = typed
			}
		}
	}
	require.NotEmpty(t, out)
	return out
}

func TestWhatIsNoManifestIsFound(t *testing.T) {
	text, err := os.ReadFile("projector.yaml")
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	_, err = decode(first)
	require.NoError(t, err)
	for old, planted := range map[string]string{
		"readinessProbe:": "readynessProbe:", "periodSeconds: 5": "periodSeconds: 5s", "apps/v1": "apps/v1beta1", "kind: Deployment": "kind: Deploymnt",
		"terminationGracePeriodSeconds: 30": "terminationGracePeriodSeconds: 30\n      terminationGracePeriodSeconds: 40",
	} {
		require.Contains(t, first, old)
		_, err := decode(strings.Replace(first, old, planted, 1))
		require.Error(t, err, planted)
	}
}

func TestDeploymentsAreProbedAndProtected(t *testing.T) {
	budgets := all[policyv1.PodDisruptionBudget](t)
	for file, d := range all[appsv1.Deployment](t) {
		pod := labels.Set(d.Spec.Template.Labels)
		require.True(t, selects(t, d.Spec.Selector, pod), file)
		protected := false
		for _, b := range budgets {
			protected = protected || selects(t, b.Spec.Selector, pod)
		}
		require.True(t, protected, "%s has no PodDisruptionBudget", file)
		require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
		c := d.Spec.Template.Spec.Containers[0]
		require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, file)
		require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path, file)
		require.NotNil(t, c.StartupProbe, file)
	}
	for file, s := range all[corev1.Service](t) {
		reaches := 0
		for _, d := range all[appsv1.Deployment](t) {
			if labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(d.Spec.Template.Labels)) {
				reaches++
			}
		}
		require.Equal(t, 1, reaches, file)
	}
	for file, j := range all[batchv1.Job](t) {
		require.Equal(t, []string{"migrate", "up"}, j.Spec.Template.Spec.Containers[0].Args, file)
	}
}

func selects(t *testing.T, s *metav1.LabelSelector, pod labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(pod)
}

// The variables are known to oncebox, and a process that is stopped gets more time than it may need.
func TestGracePeriodsAreLongerThanWhatIsUnderWay(t *testing.T) {
	for file, d := range all[appsv1.Deployment](t) {
		t.Run(file, func(t *testing.T) {
			for _, v := range d.Spec.Template.Spec.Containers[0].Env {
				t.Setenv(v.Name, v.Value)
			}
			cfg, err := config.FromEnv()
			require.NoError(t, err)
			cfg = cfg.WithDefaults()
			var process serve.Config
			require.NoError(t, config.Env("ONCEBOX_SERVE_", &process))
			require.NoError(t, process.Validate())
			end := process.WithDefaults().EndTimeout
			grace := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
			if hooks := d.Spec.Template.Spec.Containers[0].Lifecycle; hooks != nil {
				grace -= time.Duration(hooks.PreStop.Sleep.Seconds) * time.Second
			}
			require.Greater(t, grace, end, "the process ends by itself before it is killed")
			switch {
			case strings.HasSuffix(d.Name, "projector"):
				require.Greater(t, end, cfg.Projector.Lease+cfg.Projector.PublishTimeout)
			case strings.HasSuffix(d.Name, "consumer"):
				require.Greater(t, end, cfg.Consumer.DrainTimeout)
				require.Greater(t, end, cfg.Inbox.DrainTimeout)
				require.GreaterOrEqual(t, cfg.Consumer.DrainTimeout, cfg.Inbox.HandlerTimeout)
				require.GreaterOrEqual(t, cfg.Inbox.DrainTimeout, cfg.Inbox.HandlerTimeout)
			default:
				require.Greater(t, end, 30*time.Second, "httpmw.DefaultTimeout")
			}
		})
	}
}

func TestRelayIsScaledByTheAgeOfItsOldestEvent(t *testing.T) {
	deployments := all[appsv1.Deployment](t)
	for file, h := range all[autoscalingv2.HorizontalPodAutoscaler](t) {
		found := false
		for _, d := range deployments {
			if d.Name == h.Spec.ScaleTargetRef.Name {
				found = true
				require.Nil(t, d.Spec.Replicas, "%s: a number in the manifest would undo what the autoscaler did", file)
			}
		}
		require.True(t, found, file)
		require.Equal(t, "oncebox_outbox_oldest_age_seconds", h.Spec.Metrics[0].External.Metric.Name)
		require.LessOrEqual(t, h.Spec.MaxReplicas, int32(64), "there are 64 lanes")
	}
}
