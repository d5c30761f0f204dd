"""Writes networks_pytorch.safetensors: small networks with their weights, inputs and outputs, as PyTorch has them.

Networks in evaluation mode, batch norms with statistics of their own:
  lenet.*   a LeNet-like network on 1x12x12
  resnet.*  a residual network of depth 8 with 4, 6 and 8 channels on 3x8x8, named as torchvision names such networks
  sequential.*  an nn.Sequential: layer norm, SiLU, sigmoid, softplus and dropout between more than ten layers
  plain.*   an nn.Sequential of convolutions and linear layers, some of them without biases
  vgg.*     features and classifier, both nn.Sequential: biases before batch norms, padding, a layer norm of images
Tensors: NAME.weights.* (the state dict), NAME.x, NAME.y.
"""
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 5, padding=2)
        self.conv2 = nn.Conv2d(4, 6, 3)
        self.fc1 = nn.Linear(6 * 2 * 2, 12)
        self.fc2 = nn.Linear(12, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(torch.tanh(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels[0])
        self.layer1 = nn.Sequential(Block(channels[0], channels[0], 1))
        self.layer2 = nn.Sequential(Block(channels[0], channels[1], 2))
        self.layer3 = nn.Sequential(Block(channels[1], channels[2], 2))
        self.fc = nn.Linear(channels[2], classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


class Vgg(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 5, 3, stride=2, padding=1), nn.LayerNorm([5, 2, 2]), nn.ReLU(),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(20, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


sequential = nn.Sequential(
    nn.Linear(7, 6), nn.LayerNorm(6), nn.SiLU(), nn.Dropout(0.3), nn.Linear(6, 6), nn.Sigmoid(),
    nn.Linear(6, 6), nn.Softplus(), nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, 4),
)

out = {}


def add(name, net, shape):
    for module in net.modules():
        if isinstance(module, nn.LayerNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            for tensor, low, high in [(module.weight, 0.5, 1.5), (module.bias, -0.5, 0.5)]:
                nn.init.uniform_(tensor, low, high)
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2.0)
    x = torch.randn(6, *shape)
    with torch.no_grad():
        y = net.eval()(x)
    out.update({f"{name}.weights.{key}": value.clone() for key, value in net.state_dict().items()})
    out.update({f"{name}.x": x.flatten(1), f"{name}.y": y})


networks = [("lenet", LeNet(), (1, 12, 12)), ("resnet", ResNet([4, 6, 8], 5), (3, 8, 8))]
for name, net, shape in networks + [("sequential", sequential, (7,)), ("vgg", Vgg(), (3, 8, 8))]:
    add(name, net, shape)
plain = nn.Sequential(
    nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(48, 5, bias=False), nn.Tanh(),
    nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3, bias=False),
)
add("plain", plain, (2, 4, 4))
save_file(out, "networks_pytorch.safetensors", {"provenance": f"torch {torch.__version__}, networks_pytorch.py"})
